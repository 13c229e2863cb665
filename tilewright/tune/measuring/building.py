"""Builds candidates in parallel, in workers that may crash or time out."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tilewright.kernels.pipeline import Options
from tilewright.kernels.workers import Answer, Worker, cpus
from tilewright.support.config import config
from tilewright.target import Target
from tilewright.tune.measuring.data import linked
from tilewright.tune.tasks import Task

#: The time limit for a kernel, in seconds.
_TIMEOUT: Final = 60.0


class KernelBuilder:
    """Workers that compile kernels for one target, until closed."""

    def __init__(self, target: Target, timeout: float = _TIMEOUT) -> None:
        self._target, self._timeout = target, timeout
        count = config().compile_jobs or len(cpus())
        self._workers: list[Worker | None] = [None] * count
        #: Held while a worker compiles, even if the result is no longer needed.
        self._busy = [threading.Lock() for _ in range(count)]
        self._closed = False

    def built(self, task: Task, schedulers: Sequence[str | None]) -> list[Answer]:
        """Serialized kernels of a task with these schedulers (None: the default), or the errors."""
        return [answer for _, answer in sorted(self.building(task, schedulers))]

    def building(
        self, task: Task, schedulers: Sequence[str | None]
    ) -> Iterator[tuple[int, Answer]]:
        """The same with their indices, in order of completion."""
        waiting = deque(enumerate(schedulers))
        done = queue.SimpleQueue[tuple[int, Answer] | None]()
        count = min(len(self._workers), len(schedulers))
        for slot in range(count):
            args = (slot, task, waiting, done)
            threading.Thread(target=self._work, args=args, daemon=True).start()
        left = set(range(len(schedulers)))
        try:
            while count:
                found = done.get()
                if found is None:
                    count -= 1
                    continue
                left.remove(found[0])
                yield found
        finally:
            waiting.clear()
        for number in sorted(left):
            yield number, Answer(b"", "no worker could be started")

    def close(self) -> None:
        """End all workers; threads that wait for one do not start another."""
        self._closed = True
        for worker in filter(None, self._workers):
            worker.process.end()

    def _work(
        self,
        slot: int,
        task: Task,
        waiting: deque[tuple[int, str | None]],
        done: queue.SimpleQueue[tuple[int, Answer] | None],
    ) -> None:
        try:
            with self._busy[slot]:
                self._build(slot, task, waiting, done)
        finally:
            done.put(None)

    def _build(
        self,
        slot: int,
        task: Task,
        waiting: deque[tuple[int, str | None]],
        done: queue.SimpleQueue[tuple[int, Answer] | None],
    ) -> None:
        while waiting and not self._closed and (worker := self._worker(slot)) is not None:
            try:
                number, scheduler = waiting.popleft()
            except IndexError:
                return
            answer = worker.compiled(task.function, _options(task, scheduler), self._timeout)
            if answer is None:
                answer = Answer(b"", f"the compiler failed: {worker.process.ended_by}")
                worker.process.end()
                self._workers[slot] = None
            done.put((number, linked(answer, self._target)))

    def _worker(self, slot: int) -> Worker | None:
        worker = self._workers[slot]
        if worker is None:
            worker = Worker.started(self._target)
            if worker is not None and not worker.is_ready():
                worker.process.end()
                worker = None
            self._workers[slot] = worker
        return worker


def _options(task: Task, scheduler: str | None) -> Options:
    return task.options if scheduler is None else replace(task.options, scheduler=scheduler)
