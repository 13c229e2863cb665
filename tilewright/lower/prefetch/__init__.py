"""Prefetches: of what is read some iterations later, and of the panel after the present one."""

from tilewright.lower.prefetch.next_panel import prefetch_next
from tilewright.lower.prefetch.steps_ahead import place_prefetches

__all__ = ["place_prefetches", "prefetch_next"]
