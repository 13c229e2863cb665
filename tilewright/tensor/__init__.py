"""Compute definitions (`te`) and the operators written in them (`ops`)."""
