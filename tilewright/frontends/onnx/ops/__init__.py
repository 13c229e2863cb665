"""Converters of operators, one family per file; every file here is imported (see `table.py`)."""
