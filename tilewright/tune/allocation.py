"""Where the next trials go: to the task from which the model gains most.

What a task may gain is the part of its time that a faster schedule could save: no more than what is
above its floor (`insight.roof`), and half as likely after each batch that found nothing better.
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

#: The part of its time that a task may save at least, since floors are estimates.
_LEAST_HEADROOM: Final = 0.05
#: Batches without a gain after which a task is left alone.
PATIENCE: Final = 6
#: Seconds that a call takes at least: operations and bytes.
Floor = Callable[[int, int], float]


@dataclass
class Search:
    """A task with what is known of it."""

    task: Task
    space_of: Callable[[Task], Space]
    known: TaskHistory = field(default_factory=TaskHistory)
    #: Samples that were taken, or found to be illegal.
    looked_at: set[Sample] = field(default_factory=set[Sample])
    #: The loops of all candidates that were taken, and of the default.
    texts: set[str] = field(default_factory=set[str])
    #: The kernel of the default schedule.
    reference: bytes = b""
    #: The winner so far, if any, and its time in that of the default.
    winner: Record | None = None
    ratio: float = 1.0
    trials: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    #: Seconds of all calls in a run by the default schedule; measured where it is not given.
    before: float = 0.0
    #: Batches since the last gain.
    stale: int = 0
    #: Why there is nothing more to search; empty where there is.
    ended: str = ""

    def __post_init__(self) -> None:
        self.before = self.task.seconds

    @cached_property
    def space(self) -> Space:
        return self.space_of(self.task)

    @property
    def seconds(self) -> float:
        """What the task takes of a run of the model by now."""
        return self.before * self.ratio

    def expected_gain(self, floor: Floor) -> float:
        """Seconds of a run that the next batch may save."""
        if self.ended:
            return 0.0
        least = floor(self.task.flops, self.task.bytes) * self.task.calls
        headroom = max(_LEAST_HEADROOM, 1 - least / self.seconds if self.seconds else 0.0)
        return self.seconds * headroom * 0.5**self.stale


def most_promising(searches: Sequence[Search], floor: Floor) -> Search | None:
    """The task for the next batch; None where nothing is left to search."""
    best = max(searches, key=lambda s: s.expected_gain(floor), default=None)
    return best if best is not None and not best.ended else None
