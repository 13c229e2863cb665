"""A queue of candidates to be measured by several devices, and their results.

A candidate whose device disappears is given to another one. So is one that fails, if there are more
devices: a failure counts when two devices report it, and a device whose reports are disproved
several times gets no more work.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tilewright.runtime import Measured, TrialTask

#: How many devices may be lost over one candidate.
_ATTEMPTS: Final = 3
#: How often a device may report a failure that another one disproves.
_STRIKES: Final = 3
#: Seconds for which a device that finds nothing to do waits before it looks whether all is over.
_WAIT: Final = 0.5


@dataclass(frozen=True, eq=False)
class StartedTask:
    """A task whose candidates are being measured."""

    task: TrialTask
    #: The packed kernel of its default.
    default: bytes


@dataclass(eq=False)
class Job:
    """A candidate to be measured; without code, only whether the default runs."""

    begun: StartedTask
    code: bytes | None
    rounds: int
    early: bool
    report: Callable[[Measured], None]
    #: Whether the result is not needed any more.
    is_over: Callable[[], bool] = lambda: False
    #: How it ended on devices that were lost over it.
    lost: list[Measured] = field(default_factory=list[Measured])
    #: The failures that devices have reported, by device.
    failures: dict[str, Measured] = field(default_factory=dict[str, Measured])


class JobQueue:
    """Jobs that wait, devices that are there, and those that are left out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        #: Sessions on each device that is there.
        self._here = Counter[str]()
        self._strikes = Counter[str]()
        #: Why devices are left out.
        self.left_out: dict[str, str] = {}
        self._since = time.monotonic()
        self.is_closed = False

    # ---- jobs -----------------------------------------------------------------------------------

    def put(self, job: Job, *, first: bool = False) -> None:
        """Have a job done, before all others or after them."""
        with self._changed:
            self._jobs.insert(0 if first else len(self._jobs), job)
            self._changed.notify_all()

    def take(self, device: str) -> Job | None:
        """A job for a device; None where there is none for now."""
        with self._changed:
            job = self._job_for(device)
            if job is None and not self.is_closed:
                self._changed.wait(_WAIT)
                job = self._job_for(device)
            return job

    def _job_for(self, device: str) -> Job | None:
        self._jobs = [job for job in self._jobs if not job.is_over()]
        for job in list(self._jobs):
            if device not in job.failures:
                self._jobs.remove(job)
                return job
            if not self._others(job):
                self._jobs.remove(job)
                job.report(job.failures[device])
        return None

    def settle(self, job: Job, device: str, measured: Measured) -> None:
        """Take what a device says of a job."""
        with self._changed:
            if measured.failure is None:
                for other in job.failures:
                    self._strike(other, f"it said: {job.failures[other].reason}")
                job.report(measured)
            elif measured.is_lost:
                self._lost(job, measured)
            else:
                job.failures[device] = measured
                if len(job.failures) < 2 and self._others(job):
                    self.put(job, first=True)
                else:
                    job.report(measured)

    def _lost(self, job: Job, measured: Measured) -> None:
        job.lost.append(measured)
        if len(job.lost) < _ATTEMPTS:
            self.put(job, first=True)
            return
        # A candidate whose process is killed wherever it is measured is the cause of that: it
        # takes all memory, for one.
        is_cause = all(m.failure == "killed" for m in job.lost)
        job.report(Measured(failure="crash" if is_cause else "lost", reason=measured.reason))

    def _others(self, job: Job) -> bool:
        return bool(self._here.keys() - job.failures.keys())

    # ---- devices --------------------------------------------------------------------------------

    def arrive(self, device: str) -> None:
        with self._changed:
            self._here[device] += 1

    def depart(self, device: str) -> None:
        with self._changed:
            self._here[device] -= 1
            self._here = +self._here
            self._since = time.monotonic()
            self._changed.notify_all()

    def strike(self, device: str, reason: str) -> None:
        """A device was wrong."""
        with self._changed:
            self._strike(device, reason)

    def _strike(self, device: str, reason: str) -> None:
        self._strikes[device] += 1
        if self._strikes[device] >= _STRIKES:
            self.left_out.setdefault(device, reason)

    def leave_out(self, device: str, reason: str) -> None:
        """Ask a device for nothing more."""
        with self._changed:
            self.left_out.setdefault(device, reason)

    @property
    def idle_seconds(self) -> float:
        """For how long there has been no device."""
        with self._changed:
            return 0.0 if self._here else time.monotonic() - self._since

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._jobs.clear()
            self._changed.notify_all()


class Results:
    """What comes of the jobs of one call, as they are done."""

    def __init__(self) -> None:
        self._done = queue.SimpleQueue[tuple[int, Measured] | BaseException]()
        self.is_over = False
        #: Jobs of which nothing is known yet; None while more may come.
        self._count: int | None = None
        self._told = 0

    def reporter(self, number: int) -> Callable[[Measured], None]:
        """Takes the result of the job of this number."""
        return lambda measured: self._done.put((number, measured))

    def expect(self, count: int) -> None:
        """There are so many jobs, and no more."""
        self._count = count

    def fail(self, error: BaseException) -> None:
        """There will be no more results; whoever waits gets this error."""
        self._done.put(error)

    @property
    def are_all(self) -> bool:
        return self._count is not None and self._told >= self._count

    def next(self, seconds: float) -> tuple[int, Measured] | None:
        """The next one; None where there is none in so many seconds."""
        try:
            found = self._done.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        self._told += 1
        return found
