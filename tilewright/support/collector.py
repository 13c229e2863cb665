"""Runs Python's garbage collector less often during compilation.

Nodes of expressions live long and are not part of cycles: scanning them again and again took a
tenth of the compile time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

#: Objects that may be allocated between two collections.
_RARELY = 200_000
_lock = threading.Lock()
#: The thresholds before the first change, to be restored.
_before: list[tuple[int, int, int]] = []
_users = [0]


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Collect less often; thresholds are restored when the last user is done."""
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
