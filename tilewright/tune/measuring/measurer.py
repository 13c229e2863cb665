"""The interface between a search and the machine that measures, local or remote.

A measurer gets compiled kernels as bytes and returns numbers; it needs no knowledge of schedules or
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from tilewright.runtime import Measured
from tilewright.tune.tasks import Task

#: The index of a candidate, in order of arrival, and its result.
Outcome = tuple[int, Measured]


class Measurer(Protocol):
    """Times kernels of tasks."""

    @property
    def width(self) -> int:
        """Candidates measured at the same time; 0 if none may be measured while others are built,
        which would disturb it."""
        ...

    def begin(self, task: Task, reference: bytes) -> Measured:
        """Begin a task with this default kernel, serialized; gives whether it runs."""
        ...

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[Outcome]:
        """Measure serialized kernels of the task against the default, in order of completion; with
        `early`, those that are clearly slower in the first round are not measured further.

        Another candidate can be measured at length while the first are in progress."""
        ...

    def close(self) -> None:
        """Release the machine."""
        ...
