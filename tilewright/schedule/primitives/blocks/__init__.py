"""Primitives that move, join and take apart blocks."""
