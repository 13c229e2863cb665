"""Passes for loops that are bound to the threads of a GPU."""

from tilewright.lower.gpu.barriers import place_barriers
from tilewright.lower.gpu.launches import single_threaded, split_launches, threads_of
from tilewright.lower.gpu.private import drop_thread_dimensions
from tilewright.lower.gpu.remote import reach_device

__all__ = [
    "drop_thread_dimensions",
    "place_barriers",
    "reach_device",
    "single_threaded",
    "split_launches",
    "threads_of",
]
