"""Passes for loops that are bound to the threads of a GPU."""

from tilewright.lower.gpu.barriers import place_barriers
from tilewright.lower.gpu.private import drop_thread_dimensions

__all__ = ["drop_thread_dimensions", "place_barriers"]
