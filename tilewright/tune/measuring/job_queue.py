"""A queue of candidates for measurement on several devices, and their results.

A candidate whose device disappears is given to another one. So is one that fails, if there are more
devices: a failure counts once two devices report it, and a device whose reports are repeatedly
refuted gets no more work.
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

#: Most devices that may be lost over one candidate.
_ATTEMPTS: Final = 3
#: Failure reports refuted by other devices after which a device is dropped.
_STRIKES: Final = 3
#: Seconds that an idle device waits for a job at a time.
_WAIT: Final = 0.5


@dataclass(frozen=True, eq=False)
class StartedTask:
    """A task whose candidates are being measured."""

    task: TrialTask
    #: The serialized kernel of its default.
    default: bytes


@dataclass(eq=False)
class Job:
    """A candidate to be measured; without code, a check that the default runs."""

    begun: StartedTask
    code: bytes | None
    rounds: int
    early: bool
    report: Callable[[Measured], None]
    #: Whether the result is no longer needed.
    is_over: Callable[[], bool] = lambda: False
    #: The results from devices that were lost over it.
    lost: list[Measured] = field(default_factory=list[Measured])
    #: The failures reported, by device.
    failures: dict[str, Measured] = field(default_factory=dict[str, Measured])


class JobQueue:
    """The waiting jobs, the devices present, and those that are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        #: The number of sessions on each present device.
        self._here = Counter[str]()
        self._strikes = Counter[str]()
        #: The reasons why devices are dropped.
        self.left_out: dict[str, str] = {}
        self._since = time.monotonic()
        self.is_closed = False

    # ---- jobs -----------------------------------------------------------------------------------

    def put(self, job: Job, *, first: bool = False) -> None:
        """Add a job, before all others or after them."""
        with self._changed:
            self._jobs.insert(0 if first else len(self._jobs), job)
            self._changed.notify_all()

    def take(self, device: str) -> Job | None:
        """A job for a device; None if there is none within a short wait."""
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
        """Process a device's result for a job."""
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
        # A candidate whose process is killed on every device is itself the cause: it exhausts
        # memory, for instance.
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
        """Count a wrong result against a device."""
        with self._changed:
            self._strike(device, reason)

    def _strike(self, device: str, reason: str) -> None:
        self._strikes[device] += 1
        if self._strikes[device] >= _STRIKES:
            self.left_out.setdefault(device, reason)

    def leave_out(self, device: str, reason: str) -> None:
        """Give no more jobs to a device."""
        with self._changed:
            self.left_out.setdefault(device, reason)

    @property
    def idle_seconds(self) -> float:
        """How long there has been no device."""
        with self._changed:
            return 0.0 if self._here else time.monotonic() - self._since

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._jobs.clear()
            self._changed.notify_all()


class Results:
    """The results of the jobs of one call, in order of completion."""

    def __init__(self) -> None:
        self._done = queue.SimpleQueue[tuple[int, Measured] | BaseException]()
        self.is_over = False
        #: The number of jobs; None while more may be added.
        self._count: int | None = None
        self._told = 0

    def reporter(self, number: int) -> Callable[[Measured], None]:
        """A function that takes the result of this job."""
        return lambda measured: self._done.put((number, measured))

    def expect(self, count: int) -> None:
        """Set the total number of jobs."""
        self._count = count

    def fail(self, error: BaseException) -> None:
        """End with an error, which is raised to the waiting caller."""
        self._done.put(error)

    @property
    def are_all(self) -> bool:
        return self._count is not None and self._told >= self._count

    def next(self, seconds: float) -> tuple[int, Measured] | None:
        """The next result; None if there is none within this many seconds."""
        try:
            found = self._done.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        self._told += 1
        return found
