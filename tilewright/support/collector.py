"""Python's garbage collector, which need not look at what a compiler builds all the time.

Nodes of expressions live long and are no part of cycles: looking at them again and again took a
tenth of the time that compiling does.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

#: Objects that may be made between two collections.
_RARELY = 50_000
_lock = threading.Lock()
#: The thresholds before the first change, to be restored.
_before: list[tuple[int, int, int]] = []
_users = [0]


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Collect less often; as before once the last of those who asked for it is done."""
    with _lock:
        _users[0] += 1
        if _users[0] == 1:
            _before[:] = [gc.get_threshold()]
            if 0 < _before[0][0] < _RARELY:
                gc.set_threshold(_RARELY, *_before[0][1:])
    try:
        yield
    finally:
        with _lock:
            _users[0] -= 1
            if _users[0] == 0:
                gc.set_threshold(*_before[0])
