"""How long kernels should take, by a model of the machine: what they took is held beside it.

A kernel takes the longer of its arithmetic and of moving its bytes, and then what it costs to share
the work among threads, if that pays. Constants come from the level that holds all that a run of the
model touches, for so much passes before they are needed again; other values come from the level
that holds what the kernel touches, for they were made or will be read nearby.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.insight.roof import Roof
from tilewright.support.profile import Event, Profile


@dataclass(frozen=True)
class Prediction:
    """A kernel in one run of a model: all its calls, as measured and as foretold; in seconds."""

    name: str
    calls: int
    measured: float
    predicted: float
    flops: int
    bytes: int

    @property
    def gap(self) -> float:
        """What it takes beyond what was foretold."""
        return self.measured - self.predicted


def predictions(profile: Profile, roofs: Sequence[Roof]) -> list[Prediction]:
    """The kernels of a run, the largest gap first; `roofs` for the threads that it may use.

    Times are the least over the runs, call by call, as those are that the roof is made of.
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
    """The seconds of a call in a run that touches so many bytes, on as many threads as pay."""
    return min(_seconds(event, touched, roof) for roof in roofs)


def _seconds(event: Event, touched: float, roof: Roof) -> float:
    values = (event.bytes - event.constants) / roof.rate(event.bytes)
    constants = event.constants / roof.rate(touched)
    return max(event.flops / roof.flops, values + constants) + roof.fork_join
