"""Building graphs in Python: the builder, control flow, operators on values."""
