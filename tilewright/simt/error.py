"""Errors of kernels, with the thread at fault."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.support.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]


class Place(NamedTuple):
    """One thread of a launch, by the indices of its block and its own, each as (x, y, z)."""

    block: tuple[int, ...]
    thread: tuple[int, ...]

    def __str__(self) -> str:
        return f"block {self.block}, thread {self.thread}"


class SimtError(UserError):
    """A kernel has undefined behaviour on a GPU."""

    def __init__(self, kernel: str, place: Place | None, reason: str, listing: str = "") -> None:
        where = f" in {place}" if place else ""
        super().__init__(f"{kernel} went wrong{where}", reason=reason, listing=listing)
        self.kernel, self.place = kernel, place


class UnknownError(Exception):
    """A value that must be known is unknown in some lanes."""

    def __init__(self, lanes: Array, what: str) -> None:
        super().__init__(what)
        self.lanes, self.what = lanes, what


class LaneError(Exception):
    """A fault of one lane, by its number among those that execute together."""

    def __init__(self, lane: int, reason: str) -> None:
        super().__init__(reason)
        self.lane, self.reason = lane, reason
