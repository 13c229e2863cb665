"""Converters, one family of layers per file."""
