"""How sessions ended, from the exit codes of their processes."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import Final

from tilewright.rpc.wire.fates import Fate, FateKind
from tilewright.rpc.wire.limits import Limits


class Ending(IntEnum):
    """The exit codes of a session's process."""

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


#: Signals raised by what a process itself computes.
_FAULTS: Final = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP"})


def fate_of(code: int, limits: Limits) -> Fate:
    """Why a session has ended, from the exit code of its process."""
    if code < 0:
        return _signalled(-code, limits)
    fates = {
        Ending.CLOSED: Fate("closed", "it was closed"),
        Ending.FAILED: Fate("failed", "it failed"),
        Ending.IDLE: Fate("idle", f"it had nothing to do for {limits.idle_seconds:g} s"),
        Ending.DAMAGED: Fate("damaged", "it was sent damaged messages"),
        Ending.REJECTED: Fate("rejected", "the client could not prove that it has the key"),
    }
    known = code in set(Ending)
    return fates[Ending(code)] if known else Fate("failed", f"it exited with {code}")


def _signalled(number: int, limits: Limits) -> Fate:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if name == "SIGALRM":
        most = f"the {limits.call_seconds:g} s that are allowed, or than its client allows"
        return Fate("time-out", f"a call took longer than {most} (SIGALRM)")
    kind: FateKind = "crash" if name in _FAULTS else "killed"
    reason = _SIGNALS.get(name)
    return Fate(kind, f"its process ended by {name}" + (f": {reason}" if reason else ""))
