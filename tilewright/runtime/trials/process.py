"""Measures candidates on this machine, in a process that is restarted when it fails."""

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
    """The time limit for a candidate, given the default's seconds per call."""
    return timeout + 100 * rounds * default


@dataclass
class TrialProcess:
    """A process for one task after the other, each with its candidates."""

    #: Seconds for a candidate, on top of its calls at the default's speed.
    timeout: float = 10.0
    #: Bytes that a candidate may allocate.
    memory: int = 1 << 30
    _process: Answering | None = field(default=None, repr=False)
    _task: tuple[TrialTask, bytes] | None = field(default=None, repr=False)
    _seconds: float = 0.0

    def begin(self, task: TrialTask, default: bytes) -> Measured:
        """Begin a task with this default kernel, serialized; gives the default's time."""
        self._task = task, default
        return self._begin()

    def measure(self, code: bytes, rounds: int, *, early: bool) -> Measured:
        """Measure a serialized kernel of the task against the default."""
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
        """Send the task to the process, which is started if necessary."""
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
            # Memory that it may have corrupted is gone with the process.
            self.close()
        return found


def _parsed(answer: bytes) -> Any:
    """The process's answer; None if a candidate has corrupted its memory."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None
