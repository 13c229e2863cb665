"""Converters, one family of operators a file."""
