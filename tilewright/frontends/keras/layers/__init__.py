"""Converters of Keras layers, one family per file."""
