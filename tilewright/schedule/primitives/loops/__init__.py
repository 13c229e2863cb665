"""Primitives that shape loops."""
