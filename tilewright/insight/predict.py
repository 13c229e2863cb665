"""Predicts the times of kernels by a machine model, for comparison with measured ones.

A kernel takes the longer of its arithmetic and of moving its bytes, plus the cost of forking
threads, if that pays. Constants come from the level of memory that holds everything a run of the
model touches, as that much is accessed before they are needed again; other values come from the
level that holds what the kernel touches, as they are produced or consumed nearby.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.insight.roof import Roof
from tilewright.support.profile import Event, Profile


@dataclass(frozen=True)
class Prediction:
    """A kernel in one run of a model: all its calls, measured and predicted; in seconds."""

    name: str
    calls: int
    measured: float
    predicted: float
    flops: int
    bytes: int

    @property
    def gap(self) -> float:
        """The measured time in excess of the prediction."""
        return self.measured - self.predicted


def predictions(profile: Profile, roofs: Sequence[Roof]) -> list[Prediction]:
    """The kernels of a run, largest gap first; `roofs` for the possible numbers of threads.

    Times are minima over the runs, call by call, like the measurements of the roof.
    """
    size = len(profile.events) // profile.runs
    run, touched = profile.events[:size], sum(e.bytes for e in profile.events[:size])
    rows: dict[str, list[tuple[Event, float]]] = {}
    for k, event in enumerate(run):
        seconds = min(e.end - e.start for e in profile.events[k::size]) / 1e9
        rows.setdefault(event.name, []).append((event, seconds))
    found = [_row(name, calls, touched, roofs) for name, calls in rows.items()]
    return sorted(found, key=lambda r: -r.gap)


def _row(
    name: str, calls: Sequence[tuple[Event, float]], touched: float, roofs: Sequence[Roof]
) -> Prediction:
    return Prediction(
        name,
        len(calls),
        sum(seconds for _, seconds in calls),
        sum(predicted(event, touched, roofs) for event, _ in calls),
        sum(event.flops for event, _ in calls),
        sum(event.bytes for event, _ in calls),
    )


def predicted(event: Event, touched: float, roofs: Sequence[Roof]) -> float:
    """The seconds of a call in a run that touches `touched` bytes, on the best thread count."""
    return min(_seconds(event, touched, roof) for roof in roofs)


def _seconds(event: Event, touched: float, roof: Roof) -> float:
    values = (event.bytes - event.constants) / roof.rate(event.bytes)
    constants = event.constants / roof.rate(touched)
    return max(event.flops / roof.flops, values + constants) + roof.fork_join
