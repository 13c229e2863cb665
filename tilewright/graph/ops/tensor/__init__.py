"""Elements in other shapes, orders and places; tensors that are made."""
