"""Memory of the processor that a device reads and writes by itself, kept from run to run.

The device may still read a piece when the run that it was taken for has returned: it is used again
when the device was waited for since.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from tilewright.runtime.arrays import Array, address_of

if TYPE_CHECKING:
    from tilewright.runtime.gpu.device import LaunchingDevice

#: Bytes of the smallest pieces; the others are powers of two.
_LEAST: Final = 512
#: Bytes up to which arrays are staged: of such memory a system has only so much.
_MOST: Final = 64 << 20
#: Pieces of a size on which the device may be at work, before it is waited for.
_AT_WORK: Final = 4


class _Piece:
    """Some memory, and how often the device must have been waited for until it is free."""

    def __init__(self, memory: Array) -> None:
        self.memory, self.address, self.free_at = memory, address_of(memory), 0


class Staged:
    """A piece of memory for one run; it goes back with its last holder."""

    def __init__(self, staging: Staging, piece: _Piece) -> None:
        self._piece, self._staging = piece, staging
        self.memory, self.address = piece.memory, piece.address
        weakref.finalize(self, staging.give, piece).atexit = False

    def keep(self) -> None:
        """Let nobody else have it before the device was waited for; the caller holds its lock."""
        self._piece.free_at = self._staging.device.waited + 1


class Staging:
    """The memory of a device for what crosses."""

    def __init__(self, device: LaunchingDevice) -> None:
        self.device = device
        #: Pieces that no run holds, by their size.
        self._spare: dict[int, list[_Piece]] = {}

    def take(self, size: int) -> Staged | None:
        """At least so many bytes; None where that is more than there should be."""
        if size > _MOST:
            return None
        size = max(_LEAST, 1 << (size - 1).bit_length())
        with self.device.lock:
            piece = self._spared(self._spare.setdefault(size, []))
            try:
                return Staged(self, piece or _Piece(self.device.pinned(size)))
            except MemoryError:
                return None

    def _spared(self, pieces: list[_Piece]) -> _Piece | None:
        """A piece that is free, always the first of them: runs alike get the same."""
        free = [p for p in pieces if p.free_at <= self.device.waited]
        if not free and len(pieces) >= _AT_WORK:
            self.device.wait()
            free = pieces[:]
        if not free:
            return None
        found = min(free, key=lambda p: p.address)
        pieces.remove(found)
        return found

    def give(self, piece: _Piece) -> None:
        """Let a piece be used again. This calls no driver: it happens at any time."""
        self._spare.setdefault(len(piece.memory), []).append(piece)
