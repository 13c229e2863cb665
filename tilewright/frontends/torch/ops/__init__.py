"""Converters, one family of operators per file; every file here is imported."""
