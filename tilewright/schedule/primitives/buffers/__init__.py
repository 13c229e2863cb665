"""Primitives that place, copy and lay out buffers."""
