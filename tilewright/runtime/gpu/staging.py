"""Pinned host memory for copies, reused between runs.

The device may still access a piece after the run that took it has returned: it is reused only after
the device has been waited for since.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from tilewright.runtime.arrays import Array, address_of

if TYPE_CHECKING:
    from tilewright.runtime.gpu.device import LaunchingDevice

#: Bytes of the smallest piece; sizes are powers of two.
_LEAST: Final = 512
#: Arrays up to this size are staged, since pinned memory is scarce.
_MOST: Final = 64 << 20
#: Pieces of one size that may be in use by the device before it is waited for.
_AT_WORK: Final = 4


class _Piece:
    """A piece of memory, and the count of waits after which it is free."""

    def __init__(self, memory: Array) -> None:
        self.memory, self.address, self.free_at = memory, address_of(memory), 0


class Staged:
    """A piece of memory for one run; it is returned with its last reference."""

    def __init__(self, staging: Staging, piece: _Piece) -> None:
        self._piece, self._staging = piece, staging
        self.memory, self.address = piece.memory, piece.address
        weakref.finalize(self, staging.give, piece).atexit = False

    def keep(self) -> None:
        """Reserve it until the device has been waited for; the caller holds the device's lock."""
        self._piece.free_at = self._staging.device.waited + 1


class Staging:
    """The staging memory of a device."""

    def __init__(self, device: LaunchingDevice) -> None:
        self.device = device
        #: Pieces that no run holds, by their size.
        self._spare: dict[int, list[_Piece]] = {}

    def take(self, size: int) -> Staged | None:
        """At least `size` bytes; None above the limit."""
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
        """A free piece, always the first one, so that equal runs get the same (and replay)."""
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
        """Return a piece. Called by finalizers at any time, so it must not call the driver."""
        self._spare.setdefault(len(piece.memory), []).append(piece)
