"""How sessions end, in words."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import Final

from tilewright.rpc.wire.limits import Limits


class Ending(IntEnum):
    """The exit codes of the process of a session."""

    CLOSED = 0
    FAILED = 1
    IDLE = 3
    DAMAGED = 4
    REJECTED = 5


_SIGNALS: Final = {
    "SIGSEGV": "it used memory that it does not have",
    "SIGBUS": "it used memory that it does not have",
    "SIGILL": "its code has instructions that this machine does not know",
    "SIGFPE": "its code divided by zero",
    "SIGABRT": "it gave up",
    "SIGKILL": "somebody killed it: the system does that where memory runs out",
    "SIGTERM": "somebody ended it",
    "SIGXFSZ": "it wrote more to its folder than is allowed",
}


def fate_of(code: int, limits: Limits) -> str:
    """Why a session has ended, by the exit code of its process."""
    if code < 0:
        return _signalled(-code, limits)
    told = {
        Ending.CLOSED: "it was closed",
        Ending.IDLE: f"it had nothing to do for {limits.idle_seconds:g} s",
        Ending.DAMAGED: "it was sent damaged messages",
        Ending.REJECTED: "the client could not prove that it has the key",
    }
    return told.get(Ending(code), "it failed") if code in set(Ending) else f"it exited with {code}"


def _signalled(number: int, limits: Limits) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if name == "SIGALRM":
        most = f"the {limits.call_seconds:g} s that are allowed, or than its client allows"
        return f"a call took longer than {most} (SIGALRM)"
    reason = _SIGNALS.get(name)
    return f"its process ended by {name}: {reason}" if reason else f"its process ended by {name}"
