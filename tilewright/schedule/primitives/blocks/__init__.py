"""Primitives that move, merge and decompose blocks."""
