"""What measures: the interface between a search and a machine, here or far away.

A measurer gets compiled kernels, which are bytes, and gives numbers; it needs to know nothing of
schedules or records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from tilewright.runtime import Measured
from tilewright.tune.tasks import Task

#: A candidate's number, in the order in which they came, and what came of it.
Outcome = tuple[int, Measured]


class Measurer(Protocol):
    """Times kernels of tasks."""

    @property
    def width(self) -> int:
        """Candidates that are measured at the same time; 0: while others are built, none is,
        since that would disturb it."""
        ...

    def begin(self, task: Task, reference: bytes) -> Measured:
        """Take up a task, whose default schedule is this packed kernel; says whether it runs."""
        ...

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[Outcome]:
        """Packed kernels of the task, each beside the default, in so many rounds, as they are done;
        with `early`, those that are clearly slower in the first round are left alone.

        Another one can be measured at length while the first are under way."""
        ...

    def close(self) -> None:
        """Let go of the machine."""
        ...
