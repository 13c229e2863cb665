"""Converters, one family of layers a file."""
