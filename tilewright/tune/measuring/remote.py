"""Measures on other machines: kernels are built here, and run there, on several at once."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tilewright.runtime import START, Measured, begin_message, seconds_allowed
from tilewright.support.errors import UserError
from tilewright.tune.measuring.data import trial_task
from tilewright.tune.measuring.devices import Devices, TrialDevice
from tilewright.tune.measuring.job_queue import Job, JobQueue, Results, StartedTask
from tilewright.tune.measuring.measurer import Outcome
from tilewright.tune.tasks import Task

#: Seconds between checks for more devices.
_LOOK: Final = 2.0


@dataclass
class RemoteMeasurer:
    """Times kernels of tasks on all devices of a pool, or on one."""

    devices: Devices
    #: Seconds for a candidate, on top of its calls at the default's speed.
    timeout: float = 10.0
    #: Bytes that a candidate may allocate.
    memory: int = 1 << 30
    #: Seconds without any device after which the search fails.
    patience: float = 60.0
    _queue: JobQueue = field(default_factory=JobQueue, repr=False)
    _begun: StartedTask | None = field(default=None, repr=False)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread], repr=False)
    _used: set[TrialDevice] = field(default_factory=set[TrialDevice], repr=False)
    _looked: float = 0.0

    @property
    def width(self) -> int:
        return max(1, len(self._threads))

    def begin(self, task: Task, reference: bytes) -> Measured:
        begun = self._begun = StartedTask(trial_task(task), reference)
        results = Results()
        self._queue.put(Job(begun, None, 0, False, results.reporter(0)), first=True)
        results.expect(1)
        ((_, found),) = self._waited(results)
        return found

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[Outcome]:
        results = Results()
        if isinstance(candidates, list):
            self._feed(candidates, rounds, early, results)
        else:
            args = (candidates, rounds, early, results)
            threading.Thread(target=self._feed, args=args, daemon=True).start()
        try:
            yield from self._waited(results)
        finally:
            results.is_over = True

    def close(self) -> None:
        self._queue.close()
        for device in list(self._used):
            device.cut()
        for thread in self._threads:
            thread.join(1.0)

    def _feed(
        self, candidates: Iterable[bytes], rounds: int, early: bool, results: Results
    ) -> None:
        """Queue candidates as jobs; a list of them takes precedence."""
        assert self._begun is not None
        count = 0
        try:
            for code in candidates:
                if results.is_over:
                    return
                report, is_over = results.reporter(count), lambda: results.is_over
                job = Job(self._begun, code, rounds, early, report, is_over)
                self._queue.put(job, first=isinstance(candidates, list))
                count += 1
            results.expect(count)
        except Exception as error:
            results.fail(error)

    def _waited(self, results: Results) -> Iterator[Outcome]:
        while not results.are_all:
            self._start_threads()
            found = results.next(_WAIT)
            if found is not None:
                yield found
            elif self._queue.idle_seconds > self.patience:
                raise self._no_devices()

    def _no_devices(self) -> UserError:
        reasons = "; ".join(f"{d} is left out: {why}" for d, why in self._queue.left_out.items())
        return UserError(
            f"no device is there to measure on ({self.devices})",
            reason=reasons or f"none has answered for {self.patience:g} s",
            remedy="see that its server runs; what was measured is in the records, and the same"
            " command goes on from there",
        )

    # ---- devices --------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        """Start a thread for each available session."""
        if time.monotonic() - self._looked < _LOOK and self._threads:
            return
        self._looked = time.monotonic()
        self._threads = [t for t in self._threads if t.is_alive()]
        for _ in range(max(1, self.devices.size()) - len(self._threads)):
            thread = threading.Thread(target=self._run_jobs, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run_jobs(self) -> None:
        """Measure on one device, and on another when it is lost."""
        while not self._queue.is_closed:
            try:
                with self.devices.borrowed() as device:
                    self._use(device)
            except (UserError, OSError):
                time.sleep(_WAIT)

    def _use(self, device: TrialDevice) -> None:
        name = device.address
        if device.target != self.devices.target:
            self._leave_out(name, f"its target is {device.target}")
        if name in self._queue.left_out:
            time.sleep(_LOOK)
            return
        self._used.add(device)
        self._queue.arrive(name)
        try:
            self._work(_DeviceSession(device, self.timeout, self.memory), name)
        finally:
            self._queue.depart(name)
            self._used.discard(device)

    def _work(self, session: _DeviceSession, name: str) -> None:
        while not self._queue.is_closed and name not in self._queue.left_out:
            job = self._queue.take(name)
            if job is None:
                continue
            measured = session.measure(job)
            if session.default_failed:
                self._queue.strike(name, measured.reason)
            self._queue.settle(job, name, measured)
            if measured.is_lost:
                return
        if name in self._queue.left_out:
            self._leave_out(name, self._queue.left_out[name])

    def _leave_out(self, name: str, reason: str) -> None:
        if name not in self._queue.left_out or reason == self._queue.left_out[name]:
            warnings.warn(f"{name} measures no more: {reason}", stacklevel=2)
        self._queue.leave_out(name, reason)


#: Seconds per wait.
_WAIT: Final = 0.5


class _DeviceSession:
    """One device, its current task, and the default's time there."""

    def __init__(self, device: TrialDevice, timeout: float, memory: int) -> None:
        self._device, self._timeout, self._memory = device, timeout, memory
        self._at: tuple[StartedTask, int] | None = None
        self._seconds = 0.0
        #: Whether the last candidate was not measured because the default failed.
        self.default_failed = False

    def measure(self, job: Job) -> Measured:
        """The device's result for a job; "lost" or "killed" if the device may be at fault."""
        self.default_failed = False
        try:
            found = self._measured(job)
        except OSError as error:
            found = Measured(failure="lost", reason=str(error).split("\n", 1)[0])
        except UserError as error:
            found = Measured.of_error(error)
        if found.failure:
            # Memory that it may have corrupted is gone with the process.
            self._at = None
            self._device.restart()
        return found

    def _measured(self, job: Job) -> Measured:
        if self._at != (job.begun, self._device.epoch) or not self._device.is_open:
            asked, data = begin_message(job.begun.task, job.begun.default)
            begun = self._device.trial(asked, data, START)
            if begun.failure and job.code is not None:
                self.default_failed = True
                return Measured(failure="lost", reason=f"the default failed: {begun.reason}")
            if begun.failure:
                return begun
            self._at, self._seconds = (job.begun, self._device.epoch), begun.seconds
        if job.code is None:
            return Measured(seconds=self._seconds)
        asked = {"rounds": job.rounds, "early": job.early, "memory": self._memory}
        within = seconds_allowed(self._timeout, job.rounds, self._seconds)
        return self._device.trial(asked, job.code, within).of_candidate
