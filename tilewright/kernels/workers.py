"""Processes that compile kernels side by side.

LLVM's Python binding holds a global lock, so threads would take turns. A worker is a process of its
own (`support.processes`) that reads loop functions as text and writes packed kernels. What a worker
fails to compile, the parent compiles itself, and so gets to see the error; not so where the worker
crashed, as the parent would.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import NamedTuple

from tilewright.ir import Block, Function, function_text, walk
from tilewright.kernels.compiled import Options, compile_function, compile_text
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


def compile_side_by_side(
    functions: Sequence[Function], target: Target, options: Sequence[Options]
) -> list[bytes]:
    """Packed kernels of all functions, each by its own options.

    This process and its workers take one after the other.
    """
    work = _Work(functions, target, options)
    with _workers(work, _worker_count(len(functions))) as threads:
        work.compile_here()
        for thread in threads:
            thread.join()
        # What a worker took and did not bring back.
        work.compile_here()
    return [work.done[k] for k in range(len(functions))]


def compile_in_worker(function: Function, target: Target, options: Options) -> bytes:
    """A packed kernel that a worker compiles: if that crashes, this process does not."""
    work = _Work([function], target, [options])
    with _workers(work, 1) as threads:
        for thread in threads:
            thread.join()
        work.compile_here()
    return work.done[0]


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
    """The functions that wait, and the kernels that are done, by number."""

    def __init__(
        self, functions: Sequence[Function], target: Target, options: Sequence[Options]
    ) -> None:
        self.functions, self.target, self.options = functions, target, options
        self.done: dict[int, bytes] = {}
        #: The signals that ended workers, by the functions that they were at.
        self.crashes: dict[int, str] = {}
        # Large ones first, so that the last to end does not end much later than the others.
        order = sorted(range(len(functions)), key=lambda k: -_size(functions[k]))
        self.waiting = deque(order)

    def take(self) -> int | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def compile_here(self) -> None:
        """Compile what waits, in this process."""
        while not self.crashes and (k := self.take()) is not None:
            self.done[k] = compile_function(self.functions[k], self.target, self.options[k])
        for k, cause in self.crashes.items():
            with during("kernel", self.functions[k].name, self.functions[k]):
                raise KernelCrashError("the compiler crashed", reason=cause)


def _size(function: Function) -> int:
    """How long a function may take to compile, compared to others: reductions are cut finely."""
    blocks = [s for s in walk(function.body) if isinstance(s, Block)]
    return sum(1 + 8 * (b.init is not None) for b in blocks)


# ---- this side ----------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a worker made of a function: a packed kernel, or the reason why there is none."""

    kernel: bytes
    error: str = ""


class Worker:
    """A process that compiles kernels for one target."""

    def __init__(self, process: Answering, target: Target) -> None:
        self.process, self._target = process, target

    @staticmethod
    def started(target: Target) -> Worker | None:
        """A worker; None where no process can be started."""
        process = Answering.started("tilewright.kernels.workers", "serve")
        return None if process is None else Worker(process, target)

    def is_ready(self) -> bool:
        """Whether it has started, which is nothing that a kernel could be blamed for."""
        return self.process.ask(str(self._target).encode()) is not None

    def compiled(
        self, function: Function, options: Options, timeout: float | None = None
    ) -> Answer | None:
        """A packed kernel or an error; None where the process has ended (`process.ended_by`)."""
        message = {"options": asdict(options), "function": function_text(function)}
        answer = self.process.ask(json.dumps(message).encode(), timeout)
        if answer is None:
            return None
        return Answer(b"", answer[1:].decode()) if answer[:1] == _FAILED else Answer(answer[1:])


@contextmanager
def _workers(work: _Work, count: int) -> Generator[list[threading.Thread]]:
    """Threads that each feed one worker; the workers end with the block, whatever ends it."""
    workers = [w for w in (Worker.started(work.target) for _ in range(count)) if w is not None]
    threads = [threading.Thread(target=_feed, args=(w, work), daemon=True) for w in workers]
    try:
        for thread in threads:
            thread.start()
        yield threads
    finally:
        for worker in workers:
            worker.process.end()


def _feed(worker: Worker, work: _Work) -> None:
    if not worker.is_ready():
        return
    while (k := work.take()) is not None:
        answer = worker.compiled(work.functions[k], work.options[k])
        if answer is not None and answer.kernel:
            work.done[k] = answer.kernel
            continue
        if answer is None and (cause := worker.process.crash) is not None:
            work.crashes[k] = cause
        else:
            work.waiting.append(k)
        return


# ---- the other side -----------------------------------------------------------------------------

_DONE, _FAILED = b"1", b"0"


def serve() -> None:
    """Compile what comes in until nothing more does."""
    messages = Messages()
    texts = iter(messages)
    target = Target.of(next(texts).decode())
    messages.answer(b"")
    with collecting_rarely():
        for text in texts:
            messages.answer(_answer(text, target))


def _answer(text: bytes, target: Target) -> bytes:
    message = json.loads(text)
    try:
        return _DONE + compile_text(message["function"], target, Options(**message["options"]))
    except Exception as error:
        # The parent compiles it again and sees the error, or takes it for the answer.
        return _FAILED + str(error).encode()
