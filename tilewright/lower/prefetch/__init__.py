"""Prefetches: what is read some steps later, and the panel that comes after the one in use."""

from tilewright.lower.prefetch.next_panel import prefetch_next
from tilewright.lower.prefetch.steps_ahead import place_prefetches

__all__ = ["place_prefetches", "prefetch_next"]
