"""Tells whether Ctrl-C was pressed.

`KeyboardInterrupt` may be raised anywhere, also inside other libraries' use of locks and processes,
and be replaced there by an error that is a consequence of it. To end cleanly, a program must know
which came first.

    with watching_interrupts() as was_interrupted:
        try:
            work()
        except Exception:
            if not was_interrupted():
                raise

Where code of other languages calls Python back, an exception cannot propagate, and what was begun
must be finished. There, Ctrl-C waits until it can be handled (`Postponed`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


@contextmanager
def watching_interrupts() -> Generator[Callable[[], bool]]:
    """Gives a function that tells whether there was an interrupt in the block, still raised."""
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


class Postponed:
    """Ctrl-C takes effect where `deliver` is called, or where the block ends."""

    def __init__(self) -> None:
        self._before: Any = None
        self._waiting: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                # Nothing is raised after this, so that it is always undone.
                signal.signal(signal.SIGINT, self._keep)
                self._before = before
        return self

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))

    def deliver(self) -> None:
        """Pass the interrupts that came in meanwhile to the program's own handler."""
        while self._waiting:
            self._before(*self._waiting.pop())

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self.deliver()
