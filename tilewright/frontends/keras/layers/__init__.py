"""Converters of Keras layers, one family a file."""
