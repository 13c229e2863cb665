"""The process in which candidates run: it may crash, hang or be killed.

A message is a line of JSON, followed by bytes: first a task with its default's kernel, then
candidates. Sessions of remote devices answer the same messages (`TrialServer`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from tilewright.runtime.kernel import PackedKernel
from tilewright.runtime.program import TargetInfo
from tilewright.runtime.trials.measured import Measured, TrialError
from tilewright.runtime.trials.running import RunningTask
from tilewright.runtime.trials.task import TrialTask
from tilewright.support.errors import UserError
from tilewright.support.processes import Messages


def serve() -> None:
    """Answer messages until the input ends."""
    messages, trials = Messages(), TrialServer()
    for message in messages:
        head, _, code = message.partition(b"\n")
        messages.answer(json.dumps(trials.answered(json.loads(head), code)).encode())


def begin_message(task: TrialTask, default: bytes) -> tuple[dict[str, Any], bytes]:
    """The message that begins a task with this default kernel, serialized."""
    packed = task.packed()
    return {"task": len(packed)}, packed + default


class TaskAtWork(Protocol):
    """A task whose default has been run, against which candidates are measured."""

    #: The seconds of a call of the default.
    seconds: float

    def compared(
        self, candidate: PackedKernel, rounds: int, *, early: bool, memory: int
    ) -> Measured:
        """Compare a candidate's results and times with the default's."""
        ...


class TrialServer:
    """Answers messages for the current task; `why_not` gives the reason if code cannot run here."""

    _task: TaskAtWork | None

    def __init__(
        self,
        why_not: Callable[[TargetInfo], str] = lambda target: "",
        begin: Callable[[TrialTask, PackedKernel], TaskAtWork] = RunningTask,
    ) -> None:
        self._why_not, self._begin, self._task = why_not, begin, None

    def answered(self, asked: dict[str, Any], code: bytes) -> dict[str, Any]:
        """The answer to a message, as from `Measured.as_data`."""
        try:
            return self._measured(asked, code).as_data()
        except MemoryError:
            return {"failure": "memory", "reason": "there is not enough memory for it"}
        except TrialError as error:
            return Measured.of_error(error).as_data()
        except Exception as error:
            reason = str(error).split("\n", 1)[0]
            kind = "memory" if reason.startswith("out of memory") else "error"
            return {"failure": kind, "reason": reason}

    def _measured(self, asked: dict[str, Any], code: bytes) -> Measured:
        if "task" in asked:
            self._task = None
            size = _natural(asked["task"])
            task, default = TrialTask.unpacked(code[:size]), PackedKernel.unpacked(code[size:])
            if reason := self._why_not(task.target):
                raise UserError(f"{default.name} cannot run on this device: {reason}")
            self._task = self._begin(task, default)
            return Measured(seconds=self._task.seconds)
        if self._task is None:
            raise UserError("a candidate cannot be measured", reason="there is no task")
        kernel = PackedKernel.unpacked(code)
        rounds, memory = _natural(asked.get("rounds")), _natural(asked.get("memory"))
        early = asked.get("early") is True
        return self._task.compared(kernel, max(1, rounds), early=early, memory=memory)


def _natural(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise UserError("a message makes no sense")
    return value
