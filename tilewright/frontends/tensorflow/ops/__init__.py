"""Converters of TensorFlow operators, one family per file."""
