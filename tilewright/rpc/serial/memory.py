"""Allocation of a board's memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Literal

from tilewright.runtime import TrialError
from tilewright.support.memory import aligned

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice


class TooLargeError(TrialError):
    """The board has no memory left for a request."""

    @property
    def failure(self) -> Literal["memory"]:
        return "memory"


class BoardMemory:
    """A window of memory, allocated first-fit."""

    def __init__(self, begin: int, size: int) -> None:
        start = aligned(begin)
        #: Free parts in order, as (begin, end).
        self._free = [(start, begin + size)] if start < begin + size else []
        self._taken: dict[int, int] = {}

    @property
    def largest(self) -> int:
        """The size of the largest free part."""
        return max((end - begin for begin, end in self._free), default=0)

    def take(self, size: int, what: str) -> int:
        """Allocate `size` bytes; gives their address."""
        whole = aligned(max(1, size))
        for k, (begin, end) in enumerate(self._free):
            if whole <= end - begin:
                rest = (begin + whole, end)
                self._free[k : k + 1] = [rest] if rest[0] < end else []
                self._taken[begin] = begin + whole
                return begin
        raise TooLargeError(
            f"{what} is too large for the board",
            reason=f"it takes {size:,} bytes of RAM, and {self.largest:,} are free in one piece",
            remedy="load a smaller model, or drop those that are loaded",
        )

    def give_back(self, begin: int) -> None:
        """Free an allocation by its address."""
        parts = sorted([*self._free, (begin, self._taken.pop(begin))])
        joined = parts[:1]
        for start, end in parts[1:]:
            if start == joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        self._free = joined


class BoardPart:
    """An allocation of a board's memory, for the lifetime of this object."""

    def __init__(self, device: SerialDevice, size: int, what: str) -> None:
        self.begin = device.memory.take(size, what)
        weakref.finalize(self, device.unused.append, self.begin)
