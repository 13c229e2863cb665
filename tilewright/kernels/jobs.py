"""Jobs that any process can do: schedule a kernel, generate its code, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, Literal, NamedTuple

from tilewright.ir import Block, Function, function_text, parse_function, walk
from tilewright.kernels.compiled import (
    CompiledKernel,
    ScheduledKernel,
    compiled_kernel,
    generated_kernel,
    scheduled_kernel,
    shared_code,
)
from tilewright.kernels.pipeline import Options
from tilewright.support.faults import during
from tilewright.target import Target

#: The task for a kernel: everything, only scheduling, code for its scheduled parts, or code for the
#: parts of its family.
Task = Literal["compile", "schedule", "generate", "share"]
#: The result; None where a family cannot share code.
Result = CompiledKernel | ScheduledKernel | None


class Job(NamedTuple):
    """A kernel, and the task to do."""

    task: Task
    function: Function
    options: Options
    #: The scheduled kernel or family that code is generated for ("generate", "share").
    scheduled: ScheduledKernel | None = None

    def size(self) -> int:
        """Estimated relative duration; reductions count more, as they are split into many loops."""
        blocks = [s for s in walk(self.function.body) if isinstance(s, Block)]
        return sum(1 + 8 * (b.init is not None) for b in blocks)

    def message(self) -> dict[str, Any]:
        """The job as plain data, for another process."""
        made = self.scheduled
        return {
            "task": self.task,
            "function": function_text(self.function) if made is None else "",
            "scheduled": made and made.packed().decode(),
            "options": asdict(self.options),
        }

    @staticmethod
    def of_message(message: dict[str, Any]) -> Job:
        """The job from its message."""
        task, options = message["task"], Options(**message["options"])
        if message["scheduled"] is None:
            return Job(task, parse_function(message["function"]), options)
        made = ScheduledKernel.unpacked(message["scheduled"].encode())
        return Job(task, made.parts[0], options, made)


def perform(job: Job, target: Target) -> Result:
    """Do the job."""
    with during("kernel", job.function.name, job.function):
        return _WORK[job.task](job, target)


def _compile(job: Job, target: Target) -> Result:
    return compiled_kernel(job.function, target, job.options)


def _schedule(job: Job, target: Target) -> Result:
    return scheduled_kernel(job.function, target, job.options)


def _generate(job: Job, target: Target) -> Result:
    assert job.scheduled is not None
    return generated_kernel(job.scheduled, target, job.options)


def _share(job: Job, target: Target) -> Result:
    assert job.scheduled is not None
    return shared_code(job.scheduled.parts, target, job.options)


_WORK: Final[dict[Task, Callable[[Job, Target], Result]]] = {
    "compile": _compile,
    "schedule": _schedule,
    "generate": _generate,
    "share": _share,
}


def packed(result: Result) -> bytes:
    """The result of a job as bytes, for another process."""
    return b"" if result is None else result.packed()


def unpacked(task: Task, data: bytes) -> Result:
    """The result of a job, from the bytes of another process."""
    if task == "schedule":
        return ScheduledKernel.unpacked(data)
    return CompiledKernel.unpacked(data) if data else None
