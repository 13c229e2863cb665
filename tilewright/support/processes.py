"""Child interpreters that answer messages, each in a process of its own.

Such a process imports nothing of the user's program (which `multiprocessing` would run again),
shares no memory with it, and does not receive Ctrl-C from the terminal: its parent ends it, or if
the parent was killed, the end of its input does. Messages and answers are bytes, each preceded by
its length.

    process = Answering.started("tilewright.kernels.workers", "serve")
    answer = process.ask(b"…", timeout=10.0)      # None where it has ended; `ended_by` says how
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

#: Seconds within which a process that has closed its output must have ended.
_ENDS_WITHIN: Final = 10.0
#: Signals by which a program ends through a fault of its own.
_CRASHES: Final = [
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP")
    if hasattr(signal, name)
]


class Answering:
    """This side of a process that answers one message after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.timed_out = False

    @staticmethod
    def started(module: str, function: str) -> Answering | None:
        """A process that calls a function without arguments; None where none can be started."""
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {module} import {function}; {function}()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        except OSError:
            return None
        return Answering(process)

    def ask(self, message: bytes, timeout: float | None = None) -> bytes | None:
        """The answer to a message; None where the process ends before it has answered.

        One that takes longer than `timeout` seconds is killed.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(timeout, self._kill_late) if timeout is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            _write(self._process.stdin, message)
            return _read(self._process.stdout)
        except (OSError, ValueError):
            return None
        finally:
            if timer is not None:
                timer.cancel()

    def _kill_late(self) -> None:
        self.timed_out = True
        self._process.kill()

    @property
    def crash(self) -> str | None:
        """The signal that ended the process, if it is one of `_CRASHES`."""
        with suppress(subprocess.TimeoutExpired):
            code = -self._process.wait(timeout=_ENDS_WITHIN)
            return next((s.name for s in _CRASHES if s == code), None)
        return None

    @property
    def ended_by(self) -> str:
        """How a process ended that gave no answer, in words."""
        if self.timed_out:
            return "it took too long"
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=_ENDS_WITHIN)
            known = {s.value: s.name for s in signal.Signals}
            return f"it ended by {known.get(-code, code)}" if code < 0 else f"it ended with {code}"
        return "it gave no answer"

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # Another thread may be using or closing it at the same time.
                with suppress(OSError, ValueError, RuntimeError):
                    pipe.close()


# ---- the other side -----------------------------------------------------------------------------


class Messages:
    """The other side: iterating gives messages, each of which is to be answered."""

    def __init__(self) -> None:
        self._sink = os.fdopen(os.dup(1), "wb")
        # Printed output must not end up between the answers.
        os.dup2(2, 1)
        self._waiting = queue.SimpleQueue[bytes]()
        threading.Thread(target=self._receive, daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self._waiting.get()

    def answer(self, data: bytes) -> None:
        _write(self._sink, data)

    def _receive(self) -> None:
        """Pass on messages. The end of the input ends the process at once, whatever it is doing."""
        while (message := _read(sys.stdin.buffer)) is not None:
            self._waiting.put(message)
        os._exit(0)


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    data = pipe.read(size)
    return data if len(data) == size else None
