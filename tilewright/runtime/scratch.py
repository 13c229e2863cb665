"""Scratch memory for one call of compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.support.errors import UserError
from tilewright.support.memory import ALIGNMENT, aligned

#: An error record: the message number, four integers for it, and the number of the failed call.
ERROR_WORDS: Final = 6


class Scratch:
    """Scratch memory for one call: intermediate buffers and the error record."""

    def __init__(self) -> None:
        self.error = np.zeros(ERROR_WORDS, np.int64)
        self.error_address = self.error.ctypes.data
        self._memory = np.empty(0, np.uint8)
        self.workspace = 0

    def reserve(self, size: int) -> None:
        """Provide at least `size` bytes of workspace."""
        if size <= 0 or self._memory.size >= size + ALIGNMENT:
            return
        try:
            self._memory = np.empty(size + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            raise UserError(f"out of memory: {size} bytes of workspace are needed") from None
        self.workspace = aligned(self._memory.ctypes.data)


def take_scratch(spare: list[Scratch], size: int, make: Callable[[], Scratch] = Scratch) -> Scratch:
    """An unused scratch, or a new one, with `size` bytes of workspace."""
    try:
        scratch = spare.pop()
    except IndexError:
        scratch = make()
    scratch.reserve(size)
    return scratch
