"""Loops that read memory from end to end: what comes next is asked for early."""

from __future__ import annotations

from tilewright.schedule.handles import Loop
from tilewright.schedule.schedule import Schedule

#: Bytes between what is read and what is asked for: memory answers in time, and the nearest cache
#: does not fill with it.
_AHEAD = 1024


def read_ahead(s: Schedule, loop: Loop, nbytes: int) -> None:
    """Ask for what a loop will read, whose iterations read so many neighbouring bytes."""
    s.annotate(loop, "prefetch", max(1, _AHEAD // nbytes))
