"""Convolutions with fewer products: transforms, and the model that says where they pay."""
