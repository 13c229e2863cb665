"""Processes that compile kernels in parallel.

LLVM's Python binding holds a global lock, so threads would run one at a time. A worker is a process
(`support.processes`) that reads jobs, with functions as text, and answers with results. A job that
fails in a worker is repeated by the parent, which thus sees the exception; except where the worker
crashed, as the parent would crash too.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.ir import Function
from tilewright.kernels.jobs import Job, Result, packed, perform, unpacked
from tilewright.kernels.pipeline import Options
from tilewright.support.collector import collecting_rarely
from tilewright.support.config import config
from tilewright.support.errors import InternalError
from tilewright.support.faults import during
from tilewright.support.processes import Answering, Messages
from tilewright.target import Target

#: Fewer kernels than this are compiled before another interpreter has started.
_WORTH_A_WORKER = 4


class KernelCrashError(InternalError):
    """LLVM ended the process that compiled a kernel."""


class Processes:
    """This process and its workers, which take jobs from a queue."""

    def __init__(self, target: Target, workers: Sequence[Worker]) -> None:
        self._target, self._workers = target, workers

    def perform(self, jobs: Sequence[Job]) -> list[Result]:
        """The results of all jobs."""
        work = _Work(jobs, self._target)
        threads = self._fed(work)
        work.do_here()
        for thread in threads:
            thread.join()
        # Jobs that a worker took and did not finish.
        work.do_here()
        return [work.done[k] for k in range(len(jobs))]

    def perform_elsewhere(self, job: Job) -> Result:
        """The result of a job done by a worker, so that a crash does not end this process."""
        work = _Work([job], self._target)
        for thread in self._fed(work):
            thread.join()
        work.do_here()
        return work.done[0]

    def _fed(self, work: _Work) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=_feed, args=(w, work), daemon=True) for w in self._workers
        ]
        for thread in threads:
            thread.start()
        return threads


@contextmanager
def processes(target: Target, kernels: int) -> Generator[Processes]:
    """Processes for this many kernels; the workers end with the block."""
    with _started(target, _worker_count(kernels)) as workers:
        yield Processes(target, workers)


def compile_in_worker(function: Function, target: Target, options: Options) -> bytes:
    """A serialized kernel compiled by a worker, so that a crash does not end this process."""
    with _started(target, 1) as workers:
        job = Job("compile", function, options)
        return packed(Processes(target, workers).perform_elsewhere(job))


@contextmanager
def _started(target: Target, count: int) -> Generator[list[Worker]]:
    workers = [w for w in (Worker.started(target) for _ in range(count)) if w is not None]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.process.end()


def _worker_count(kernels: int) -> int:
    jobs = config().compile_jobs or len(cpus())
    can_start = bool(sys.executable) and kernels >= _WORTH_A_WORKER
    return min(jobs - 1, kernels // 2) if can_start else 0


def cpus() -> Sequence[int]:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


class _Work:
    """The waiting jobs, and the results of finished ones, by index."""

    def __init__(self, jobs: Sequence[Job], target: Target) -> None:
        self.jobs, self.target = jobs, target
        self.done: dict[int, Result] = {}
        #: The signals that ended workers, by the job each was working on.
        self.crashes: dict[int, str] = {}
        # Longest first, for a balanced load.
        self.waiting = deque(sorted(range(len(jobs)), key=lambda k: -jobs[k].size()))

    def take(self) -> int | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def do_here(self) -> None:
        """Do the waiting jobs in this process."""
        while not self.crashes and (k := self.take()) is not None:
            self.done[k] = perform(self.jobs[k], self.target)
        for k, cause in self.crashes.items():
            with during("kernel", self.jobs[k].function.name, self.jobs[k].function):
                raise KernelCrashError("the compiler crashed", reason=cause)


# ---- this side ----------------------------------------------------------------------------------


class Answer(NamedTuple):
    """A worker's result: a serialized kernel, or the error message."""

    kernel: bytes
    error: str = ""


class Worker:
    """A process that compiles kernels for one target."""

    def __init__(self, process: Answering, target: Target) -> None:
        self.process, self._target = process, target
        self._is_ready: bool | None = None

    @staticmethod
    def started(target: Target) -> Worker | None:
        """A worker; None where no process can be started."""
        process = Answering.started("tilewright.kernels.workers", "serve")
        return None if process is None else Worker(process, target)

    def is_ready(self) -> bool:
        """Whether it has started; a failure to start is no kernel's fault."""
        if self._is_ready is None:
            self._is_ready = self.process.ask(str(self._target).encode()) is not None
        return self._is_ready

    def compiled(
        self, function: Function, options: Options, timeout: float | None = None
    ) -> Answer | None:
        """Serialized kernel or error; None where the process has ended (`process.ended_by`)."""
        return self.answer(Job("compile", function, options), timeout)

    def answer(self, job: Job, timeout: float | None = None) -> Answer | None:
        """The serialized result of a job, or an error; None where the process has ended."""
        answer = self.process.ask(json.dumps(job.message()).encode(), timeout)
        if answer is None:
            return None
        return Answer(b"", answer[1:].decode()) if answer[:1] == _FAILED else Answer(answer[1:])


def _feed(worker: Worker, work: _Work) -> None:
    if not worker.is_ready():
        return
    while (k := work.take()) is not None:
        answer = worker.answer(work.jobs[k])
        if answer is not None and not answer.error:
            work.done[k] = unpacked(work.jobs[k].task, answer.kernel)
            continue
        if answer is None and (cause := worker.process.crash) is not None:
            work.crashes[k] = cause
        else:
            work.waiting.append(k)
        return


# ---- the other side -----------------------------------------------------------------------------

_DONE, _FAILED = b"1", b"0"


def serve() -> None:
    """Answer jobs until the input ends."""
    messages = Messages()
    texts = iter(messages)
    target = Target.of(next(texts).decode())
    messages.answer(b"")
    with collecting_rarely():
        for text in texts:
            messages.answer(_answer(text, target))


def _answer(text: bytes, target: Target) -> bytes:
    try:
        return _DONE + packed(perform(Job.of_message(json.loads(text)), target))
    except Exception as error:
        # The parent compiles it again and sees the exception, or takes this as the answer.
        return _FAILED + (str(error) or type(error).__name__).encode()
