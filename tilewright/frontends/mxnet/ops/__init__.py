"""Converters, one family of operators per file."""
