"""Converters, one family of operators a file; found here by being here."""
