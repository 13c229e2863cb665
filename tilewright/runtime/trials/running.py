"""A running task: candidates are compared with its default, results first, then times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from typing import Any, Final

import numpy as np

from tilewright.runtime.device import Device
from tilewright.runtime.devices import device_for
from tilewright.runtime.kernel import PackedKernel
from tilewright.runtime.signature import ArrayParam
from tilewright.runtime.threads import install, is_installed
from tilewright.runtime.trials.alone import KernelAlone
from tilewright.runtime.trials.answers import why_wrong
from tilewright.runtime.trials.arguments import bytes_of, copied, made_up_arguments
from tilewright.runtime.trials.measured import Measured
from tilewright.runtime.trials.task import TrialTask

Array = np.ndarray[Any, Any]
Calls = Sequence[Callable[[], None]]
#: Measures the seconds of a call.
Stopwatch = Callable[[], float]

#: Minimum seconds of a sample, and samples of each kernel per round.
SAMPLE: Final = 5e-4
SAMPLES: Final = 3
#: A candidate slower than this in its first round is not measured further.
_HOPELESS: Final = 1.25
#: Most copies of the arguments, which are cycled through so that caches do not hold them all.
_COPIES: Final = 8
#: Target for the total seconds of one call with each copy.
_PASS: Final = 2e-2
#: Most calls of a sample.
_MOST_CALLS: Final = 10_000
#: On a device: most copies of a kernel's constants; most calls in one launch.
_CONSTANT_COPIES: Final = 128
_TOGETHER: Final = 64


class RunningTask:
    """A task with its default kernel, arguments, and the default's results."""

    def __init__(self, task: TrialTask, default: PackedKernel) -> None:
        if not is_installed():
            install(task.pool)
        self._task, self._device = task, device_for(task.target.kind)
        own = made_up_arguments(task)
        self._fresh = self._outputs(own)
        alone = self._loaded(default)
        alone.run(own)
        self._results = self._outputs(own)
        once = _seconds_of(self._device, alone.on(own))
        copies = copy_count(task, own, once) if self._device.is_here else 1
        self._copies = [own, *(copied(own) for _ in range(copies - 1))]
        calls = self._calls(alone, self._copies)
        self._count = self._calls_in_sample(once, len(calls))
        self._default = _stopwatch(self._device, calls, self._count)
        #: The seconds of a call of the default.
        self.seconds = self._default()

    def compared(
        self, candidate: PackedKernel, rounds: int, *, early: bool, memory: int
    ) -> Measured:
        """Compare a candidate's results, then times, with the default's; limits its memory."""
        # On top of that, its own arguments, plain and packed.
        with _limited(self._device, memory + 3 * sum(map(bytes_of, self._copies))):
            own = self._own_copies()
            alone = self._loaded(candidate)
            alone.run(own[0])
            if reason := why_wrong(self._results, self._outputs(own[0])):
                return Measured(failure="wrong answer", reason=reason)
            watch = _stopwatch(self._device, self._calls(alone, own), self._count)
            samples = ([(watch(), self._default()) for _ in range(SAMPLES)] for _ in range(rounds))
            return judged(samples, early=early)

    def _calls(self, alone: KernelAlone, copies: Sequence[list[Any]]) -> Calls:
        """Calls that cycle through copies of the arguments, to keep caches as cold as in a model.

        On a device all calls write the same memory, so that each waits for the one before, and
        operands that other kernels would have written are in the cache; constants are copied.
        """
        if self._device.is_here:
            return [alone.on(a) for a in copies]
        constants = self._task.constants
        return alone.rotating(copies[0], constants, constant_copies(self._task, copies[0]))

    def _calls_in_sample(self, seconds: float, calls: int) -> int:
        """The number of calls that fill a sample; on a device, of one launch."""
        wanted = max(1, round(SAMPLE / seconds))
        if self._device.is_here:
            return min(_MOST_CALLS, wanted)
        return calls * -(-min(_TOGETHER, wanted) // calls)

    def _loaded(self, kernel: PackedKernel) -> KernelAlone:
        return KernelAlone(kernel, self._task.signature, self._task.threads, self._device)

    def _outputs(self, arguments: Sequence[Any]) -> list[Array]:
        return [np.copy(a) for a in self._written(arguments)]

    def _written(self, arguments: Sequence[Any]) -> list[Array]:
        pairs = zip(self._task.signature.params, arguments, strict=True)
        return [a for p, a in pairs if isinstance(p, ArrayParam) and p.is_written]

    def _own_copies(self) -> list[list[Any]]:
        """Arguments for a candidate, with fresh outputs: not those that the default has written."""
        first, *others = self._copies
        own = copied(first)
        for array, fresh in zip(self._written(own), self._fresh, strict=True):
            array[...] = fresh
        return [own, *map(copied, others)]


# ---- time and memory ----------------------------------------------------------------------------


def copy_count(task: TrialTask, own: Sequence[Any], seconds: float) -> int:
    """Copies of the arguments that fill the caches twice, limited by the time to call all."""
    filling = 2 * task.caches // max(1, bytes_of(own))
    return max(1, min(_COPIES, filling, round(_PASS / seconds)))


def constant_copies(task: TrialTask, own: Sequence[Any]) -> int:
    """The copies of a task's constants that fill the caches twice."""
    size = bytes_of([own[k] for k in task.constants])
    return min(_CONSTANT_COPIES, max(1, -(-2 * task.caches // size))) if size else 1


def judged(rounds: Iterable[Sequence[tuple[float, float]]], *, early: bool) -> Measured:
    """The result from samples of a candidate and of the default, some of both in every round; with
    `early`, it stops after the first round if the candidate is clearly slower."""
    ratios, own_least, least = list[float](), float("inf"), float("inf")
    for pairs in rounds:
        own, reference = (min(times) for times in zip(*pairs, strict=True))
        own_least, least = min(own_least, own), min(least, reference)
        ratios.append(own / reference)
        if early and len(ratios) == 1 and ratios[0] > _HOPELESS:
            break
    return Measured(tuple(ratios), own_least, least)


def _stopwatch(device: Device, calls: Calls, count: int) -> Stopwatch:
    """Measures the seconds of a call, on average over `count` calls that cycle through `calls`."""
    order = list(islice(cycle(calls), count))

    def run() -> None:
        for call in order:
            call()

    if device.is_here:
        return lambda: _elapsed(run) / count
    # The first calls still load code.
    for call in (*calls, *calls):
        call()
    whole = device.together(run)
    return lambda: device.time(whole, 1, 1e3 * SAMPLE, 1).min / count


def _elapsed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _seconds_of(device: Device, call: Callable[[], None]) -> float:
    """The approximate time of a call."""
    if not device.is_here:
        return max(1e-7, device.time(call, 1, 0.0, 1).min)
    return max(1e-7, min(_elapsed(call) for _ in range(4)))


@contextmanager
def _limited(device: Device, more: int) -> Generator[None]:
    """Limit the growth of this process; not on a device, whose driver maps more than it uses."""
    if sys.platform != "linux" or not device.is_here:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + more
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
