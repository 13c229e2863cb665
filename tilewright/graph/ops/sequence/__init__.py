"""Sequences, optionals and strings."""
