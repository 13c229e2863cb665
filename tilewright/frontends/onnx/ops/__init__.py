"""Converters of operators, one family a file; a file is found by being here (see `table.py`)."""
