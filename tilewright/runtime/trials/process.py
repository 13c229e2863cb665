"""Candidates measured on this machine, in a process that is started again when it fails."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.runtime.trials.measured import Failure, Measured
from tilewright.runtime.trials.serve import begin_message
from tilewright.runtime.trials.task import TrialTask
from tilewright.support.processes import Answering

#: Seconds for the process to start and run the default schedule.
START: Final = 120.0


def seconds_allowed(timeout: float, rounds: int, default: float) -> float:
    """Seconds for a candidate, whose default takes so many for a call."""
    return timeout + 100 * rounds * default


@dataclass
class TrialProcess:
    """One task after the other, each with its candidates."""

    #: Seconds for a candidate, beyond what its calls would take at the default's speed.
    timeout: float = 10.0
    #: Bytes that a candidate may need.
    memory: int = 1 << 30
    _process: Answering | None = field(default=None, repr=False)
    _task: tuple[TrialTask, bytes] | None = field(default=None, repr=False)
    _seconds: float = 0.0

    def begin(self, task: TrialTask, default: bytes) -> Measured:
        """Take up a task, whose default is this packed kernel; says how long that takes."""
        self._task = task, default
        return self._begin()

    def measure(self, code: bytes, rounds: int, *, early: bool) -> Measured:
        """A packed kernel of the task beside the default."""
        if self._process is None and (failed := self._begin()).failure:
            return failed
        head = {"rounds": rounds, "early": early, "memory": self.memory}
        within = seconds_allowed(self.timeout, rounds, self._seconds)
        return self._request(head, code, within).of_candidate

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _begin(self) -> Measured:
        """Send the task to the process, which is started where it is not there."""
        assert self._task is not None
        if self._process is None:
            self._process = Answering.started("tilewright.runtime.trials.serve", "serve")
        if self._process is None:
            return Measured(failure="error", reason="no process can be started")
        found = self._request(*begin_message(*self._task), START)
        self._seconds = found.seconds
        return found

    def _request(self, head: dict[str, Any], code: bytes, timeout: float) -> Measured:
        assert self._process is not None
        answer = self._process.ask(json.dumps(head).encode() + b"\n" + code, timeout)
        if answer is None:
            failure: Failure = "time-out" if self._process.timed_out else "crash"
            reason = self._process.ended_by
            self.close()
            return Measured(failure=failure, reason=reason)
        found = Measured.of_data(_parsed(answer))
        if found.failure:
            # What it has written where it should not is gone with the process.
            self.close()
        return found


def _parsed(answer: bytes) -> Any:
    """What a process says; None where a candidate has spoilt its memory."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None
