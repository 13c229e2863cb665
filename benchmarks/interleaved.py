"""Time several ways of doing the same thing, in turn, so that noise falls on all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Seconds per call: median and least over the rounds."""

    median: float
    least: float


def interleaved(
    runs: Mapping[str, Callable[[], object]], rounds: int = 15, slice_ms: float = 8.0
) -> dict[str, Times]:
    """Each of `runs` for some milliseconds, again and again; the calls of a round count once."""
    counts = {name: _calls(run, slice_ms / 1e3) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            samples[name].append(_seconds(run, counts[name]))
    return {n: Times(statistics.median(s), min(s)) for n, s in samples.items()}


def _calls(run: Callable[[], object], seconds: float) -> int:
    run()
    once = min(_seconds(run, 1) for _ in range(3))
    return max(1, round(seconds / max(once, 1e-7)))


def _seconds(run: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls
