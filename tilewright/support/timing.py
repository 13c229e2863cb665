"""How long a call takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True, repr=False)
class Timing:
    """Seconds per call, one sample for each repetition."""

    samples: tuple[float, ...]
    #: Calls in each sample.
    calls: int

    @property
    def median(self) -> float:
        return Latencies(self.samples).median

    @property
    def min(self) -> float:
        return min(self.samples)

    @property
    def max(self) -> float:
        return max(self.samples)

    @property
    def spread(self) -> float:
        """The range of the samples, as a fraction of the median; under 0.05 is quiet."""
        return (self.max - self.min) / self.median if self.median else 0.0

    def __repr__(self) -> str:
        bounds = f"min {format_seconds(self.min)}, max {format_seconds(self.max)}"
        runs = f"{len(self.samples)} × {self.calls} calls"
        return f"Timing({format_seconds(self.median)}, {bounds}, spread {self.spread:.1%}, {runs})"


@dataclass(frozen=True, slots=True, repr=False)
class Latencies:
    """Seconds of single calls, in the order in which they were made."""

    samples: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """The time that `percent` per cent of the calls did not exceed."""
        ranked = sorted(self.samples)
        at = (len(ranked) - 1) * percent / 100
        low, high = ranked[math.floor(at)], ranked[math.ceil(at)]
        return low + (high - low) * (at - math.floor(at))

    @property
    def median(self) -> float:
        return self.percentile(50)

    @property
    def mean(self) -> float:
        return math.fsum(self.samples) / len(self.samples)

    @property
    def per_second(self) -> float:
        """Calls in a second, one after the other."""
        return 1 / self.mean if self.mean else 0.0

    def __repr__(self) -> str:
        points = (f"p{p} {format_seconds(self.percentile(p))}" for p in (50, 90, 99))
        return f"Latencies({', '.join(points)}, {len(self.samples)} calls)"


def latencies(
    function: Callable[[], object], seconds: float, warmup: int = 3, at_least: int = 10
) -> Latencies:
    """Time single calls of `function` for this many seconds, after warm-up calls."""
    for _ in range(warmup):
        function()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < at_least or time.perf_counter() < end:
        samples.append(_seconds(function, 1))
    return Latencies(tuple(samples))


def measure(
    function: Callable[[], object],
    repeat: int = 10,
    min_repeat_ms: float = 10.0,
    warmup: int = 1,
) -> Timing:
    """Time `function()`: `repeat` samples, each of enough calls to last `min_repeat_ms`."""
    if repeat < 1:
        raise ValueError("measure needs at least one repetition")
    for _ in range(warmup):
        function()
    calls = _calls_for(function, min_repeat_ms / 1e3)
    samples = tuple(_seconds(function, calls) / calls for _ in range(repeat))
    return Timing(samples, calls)


def interleaved(
    functions: Sequence[Callable[[], object]],
    rounds: int = 10,
    min_repeat_ms: float = 10.0,
    warmup: int = 1,
) -> list[Timing]:
    """Time several functions in turn, a sample of each in every round: noise affects all alike."""
    if rounds < 1:
        raise ValueError("measuring needs at least one round")
    for function in functions:
        for _ in range(warmup):
            function()
    counts = [_calls_for(function, min_repeat_ms / 1e3) for function in functions]
    pairs = list(zip(functions, counts, strict=True))
    table = [[_seconds(function, n) / n for function, n in pairs] for _ in range(rounds)]
    columns = zip(*table, strict=True)
    return [Timing(samples, n) for samples, n in zip(columns, counts, strict=True)]


def format_seconds(seconds: float) -> str:
    """`seconds` with three significant digits in the unit that suits it."""
    if not seconds:
        return "0 s"
    scale, unit = next((u for u in _UNITS if abs(seconds) >= u[0]), _UNITS[-1])
    value = seconds / scale
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f} {unit}"


def _calls_for(function: Callable[[], object], seconds: float) -> int:
    calls = 1
    while (taken := _seconds(function, calls)) < seconds:
        # Aim a fifth too high, but by at most tenfold: a first short run predicts badly.
        wanted = calls * 1.2 * seconds / taken if taken else calls * 10
        calls = max(calls + 1, min(math.ceil(wanted), calls * 10))
    return calls


def _seconds(function: Callable[[], object], calls: int) -> float:
    loop = range(calls)
    start = time.perf_counter()
    for _ in loop:
        function()
    return time.perf_counter() - start
