"""Software prefetches for loops that read memory from end to end."""

from __future__ import annotations

from tilewright.schedule.handles import Loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def read_ahead(s: Schedule, loop: Loop, nbytes: int, target: Target) -> None:
    """Prefetch for a loop, each iteration of which reads `nbytes` contiguous bytes."""
    s.annotate(loop, "prefetch", max(1, target.timing.prefetch_distance // nbytes))
