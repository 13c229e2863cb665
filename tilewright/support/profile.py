"""How the time of a run is spent: kernels, their work, and their timeline."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.support.files import replacing
from tilewright.support.timing import format_seconds


@dataclass(frozen=True)
class Event:
    """One call of a kernel; times are in nanoseconds, from an arbitrary origin."""

    name: str
    #: Where in the model the call comes from.
    origin: str
    start: int
    end: int
    #: Operations on elements that the loops perform; an estimate where these depend on data.
    flops: int
    #: Bytes that must be read and written at least once.
    bytes: int
    #: Of these, bytes of constants.
    constants: int = 0
    #: The scalars and dimensions that it was called with, as far as they are recorded.
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelTime:
    """All calls of one kernel in one run, on average over the runs."""

    name: str
    calls: float
    seconds: float
    #: The fraction of the time of all kernels.
    share: float
    flops: float
    bytes: float
    origins: tuple[str, ...]

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, repr=False)
class Profile:
    """Times of kernels; `rows` has the slowest first, `events` all calls in order."""

    runs: int
    events: tuple[Event, ...]
    #: Copies between host and GPU, whose `origin` names the value that was copied.
    copies: tuple[Event, ...] = ()

    @property
    def seconds(self) -> float:
        """The time of all kernels in one run."""
        return sum(e.end - e.start for e in self.events) / 1e9 / self.runs

    @property
    def rows(self) -> list[KernelTime]:
        return sorted(self._rows(self.events), key=lambda r: -r.seconds)

    @property
    def copy_rows(self) -> list[KernelTime]:
        """The copies in both directions, which `seconds` and `rows` leave out."""
        return self._rows(self.copies)

    def _rows(self, events: Sequence[Event]) -> list[KernelTime]:
        by_name: dict[str, list[Event]] = {}
        for event in events:
            by_name.setdefault(event.name, []).append(event)
        return [self._row(name, own) for name, own in by_name.items()]

    def _row(self, name: str, events: Sequence[Event]) -> KernelTime:
        seconds = sum(e.end - e.start for e in events) / 1e9 / self.runs
        return KernelTime(
            name,
            len(events) / self.runs,
            seconds,
            seconds / self.seconds if self.seconds else 0.0,
            sum(e.flops for e in events) / self.runs,
            sum(e.bytes for e in events) / self.runs,
            tuple(dict.fromkeys(e.origin for e in events if e.origin)),
        )

    def trace(self) -> dict[str, Any]:
        """All calls as a trace that chrome://tracing and ui.perfetto.dev show."""
        shown = (*self.events, *self.copies)
        start = min((e.start for e in shown), default=0)
        events = [
            {
                "name": e.name,
                "cat": "kernel",
                "ph": "X",
                "ts": (e.start - start) / 1e3,
                "dur": (e.end - e.start) / 1e3,
                "pid": 1,
                "tid": 1,
                "args": {"origin": e.origin, "flops": e.flops, "bytes": e.bytes},
            }
            for e in shown
        ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as a JSON file."""
        with replacing(path) as file:
            file.write(json.dumps(self.trace()).encode())

    def __str__(self) -> str:
        lines = [f"{'kernel':48} {'calls':>6} {'time':>10} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7}"]
        for row in self.rows:
            rates = f"{row.flops_per_second / 1e9:8.1f} {row.bytes_per_second / 1e9:7.1f}"
            time = format_seconds(row.seconds)
            lines.append(f"{row.name:48} {row.calls:6g} {time:>10} {row.share:6.1%} {rates}")
        for row in self.copy_rows:
            name, time = f"{row.name}: {', '.join(row.origins)}", format_seconds(row.seconds)
            rate = f"{row.bytes_per_second / 1e9:23.1f}"
            lines.append(f"{name:48} {row.calls:6g} {time:>10} {rate}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        kernels = len({e.name for e in self.events})
        return f"<Profile of {self.runs} runs: {kernels} kernels, {format_seconds(self.seconds)}>"
