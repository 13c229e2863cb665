"""Allocates the next batch of trials to the task from which the model gains most.

The expected gain of a task is the part of its time above its lower bound (`insight.roof`), halved
for each batch since its last improvement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tilewright.tune.records.record import Record
from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tasks import Task
from tilewright.tune.tuners.tuner import TaskHistory

#: The smallest part of its time that a task is assumed to gain, since lower bounds are estimates.
_LEAST_HEADROOM: Final = 0.05
#: Batches without improvement after which a task is dropped.
PATIENCE: Final = 6
#: A lower bound of the seconds of a call, from operations and bytes.
Floor = Callable[[int, int], float]


@dataclass
class Search:
    """A task and the state of its search."""

    task: Task
    space_of: Callable[[Task], Space]
    known: TaskHistory = field(default_factory=TaskHistory)
    #: Samples that were measured, or found to be illegal.
    looked_at: set[Sample] = field(default_factory=set[Sample])
    #: The loops of all measured candidates, and of the default.
    texts: set[str] = field(default_factory=set[str])
    #: The kernel of the default schedule.
    reference: bytes = b""
    #: The winner so far, if any, and its time relative to the default's.
    winner: Record | None = None
    ratio: float = 1.0
    trials: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    #: Seconds of all calls in a run with the default schedule; measured if not given.
    before: float = 0.0
    #: Batches since the last improvement.
    stale: int = 0
    #: The reason why the search has ended; empty while it has not.
    ended: str = ""

    def __post_init__(self) -> None:
        self.before = self.task.seconds

    @cached_property
    def space(self) -> Space:
        return self.space_of(self.task)

    @property
    def seconds(self) -> float:
        """The current seconds of the task in a run of the model."""
        return self.before * self.ratio

    def expected_gain(self, floor: Floor) -> float:
        """Seconds per run that the next batch is expected to save."""
        if self.ended:
            return 0.0
        least = floor(self.task.flops, self.task.bytes) * self.task.calls
        headroom = max(_LEAST_HEADROOM, 1 - least / self.seconds if self.seconds else 0.0)
        return self.seconds * headroom * 0.5**self.stale


def most_promising(searches: Sequence[Search], floor: Floor) -> Search | None:
    """The task for the next batch; None if no search is left."""
    best = max(searches, key=lambda s: s.expected_gain(floor), default=None)
    return best if best is not None and not best.ended else None
