"""Converters of TensorFlow operators, one family a file."""
