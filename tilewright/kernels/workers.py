"""Processes that compile kernels side by side.

LLVM's Python binding holds a global lock, so threads would take turns. A worker is a process of its
own (`support.processes`) that reads jobs with functions as text and answers with what came of them.
What a worker fails at, the parent does itself, and so gets to see the error; not so where the
worker crashed, as the parent would.
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

#: Fewer kernels than this are compiled before another interpreter would have started.
_WORTH_A_WORKER = 4


class KernelCrashError(InternalError):
    """LLVM ended the process that compiled a kernel."""


class Processes:
    """This process and its workers, which take one job after the other."""

    def __init__(self, target: Target, workers: Sequence[Worker]) -> None:
        self._target, self._workers = target, workers

    def perform(self, jobs: Sequence[Job]) -> list[Result]:
        """What comes of all jobs."""
        work = _Work(jobs, self._target)
        threads = self._fed(work)
        work.do_here()
        for thread in threads:
            thread.join()
        # What a worker took and did not bring back.
        work.do_here()
        return [work.done[k] for k in range(len(jobs))]

    def perform_elsewhere(self, job: Job) -> Result:
        """What comes of a job that a worker does: if that crashes, this process does not."""
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
    """Processes for so many kernels; the workers end with the block, whatever ends it."""
    with _started(target, _worker_count(kernels)) as workers:
        yield Processes(target, workers)


def compile_in_worker(function: Function, target: Target, options: Options) -> bytes:
    """A packed kernel that a worker compiles: if that crashes, this process does not."""
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
    """The jobs that wait, and what came of those that are done, by number."""

    def __init__(self, jobs: Sequence[Job], target: Target) -> None:
        self.jobs, self.target = jobs, target
        self.done: dict[int, Result] = {}
        #: The signals that ended workers, by the jobs that they were at.
        self.crashes: dict[int, str] = {}
        # Large ones first, so that the last to end does not end much later than the others.
        self.waiting = deque(sorted(range(len(jobs)), key=lambda k: -jobs[k].size()))

    def take(self) -> int | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def do_here(self) -> None:
        """Do what waits, in this process."""
        while not self.crashes and (k := self.take()) is not None:
            self.done[k] = perform(self.jobs[k], self.target)
        for k, cause in self.crashes.items():
            with during("kernel", self.jobs[k].function.name, self.jobs[k].function):
                raise KernelCrashError("the compiler crashed", reason=cause)


# ---- this side ----------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a worker made of a function: a packed kernel, or the reason why there is none."""

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
        """Whether it has started, which is nothing that a kernel could be blamed for."""
        if self._is_ready is None:
            self._is_ready = self.process.ask(str(self._target).encode()) is not None
        return self._is_ready

    def compiled(
        self, function: Function, options: Options, timeout: float | None = None
    ) -> Answer | None:
        """A packed kernel or an error; None where the process has ended (`process.ended_by`)."""
        return self.answer(Job("compile", function, options), timeout)

    def answer(self, job: Job, timeout: float | None = None) -> Answer | None:
        """What came of a job, packed, or an error; None where the process has ended."""
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
    """Do what comes in until nothing more does."""
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
        # The parent compiles it again and sees the error, or takes it for the answer.
        return _FAILED + (str(error) or type(error).__name__).encode()
