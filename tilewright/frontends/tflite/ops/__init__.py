"""The converters, one family of operators a file; `table.py` reads them all."""
