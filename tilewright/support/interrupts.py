"""Whether Ctrl-C was pressed.

`KeyboardInterrupt` may come up anywhere, also inside of what other libraries do with locks and
processes, and be replaced there by an error that is a consequence of it. Whoever wants to end well
asks what was first.

    with watching_interrupts() as was_interrupted:
        try:
            work()
        except Exception:
            if not was_interrupted():
                raise
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def watching_interrupts() -> Generator[Callable[[], bool]]:
    """What tells whether there was an interrupt in the block; it is raised as ever."""
    before, seen = signal.getsignal(signal.SIGINT), list[bool]()
    # Only the main thread gets signals, and the program may have handlers of its own.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(True)
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
