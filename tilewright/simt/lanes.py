"""Lanes: the threads that execute together, which are all threads of some blocks of a launch.

A value that differs between threads is an array of shape (blocks, threads), or one that broadcasts
to it, so that values that only depend on the block or the thread are computed once for each.
Vectors have one more axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.ir import WARP
from tilewright.simt.error import Place
from tilewright.simt.races import stamps

Array = np.ndarray[Any, np.dtype[Any]]
#: The active lanes, as booleans; None means all.
Mask = Array | None
AXES: Final = "xyz"
#: The mask without active lanes.
NOBODY: Final = np.zeros((1, 1), bool)


@dataclass(frozen=True)
class Geometry:
    """The extents of a launch along x, y and z: of its grid, and of each block."""

    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def blocks(self) -> int:
        return int(np.prod(self.grid))

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))


#: For host code.
ALONE: Final = Geometry((1, 1, 1), (1, 1, 1))


class Lanes:
    """All threads of the blocks from `first` to before `end`, in order."""

    def __init__(self, geometry: Geometry, first: int, end: int) -> None:
        self.geometry = geometry
        self.blocks, self.threads = end - first, geometry.threads
        self._block_numbers = np.arange(first, end, dtype=np.int64)[:, None]
        self._thread_numbers = np.arange(self.threads, dtype=np.int64)[None, :]
        self._barriers = np.zeros((self.blocks, 1), np.int64)
        self._indices = {
            **_split("blockIdx", self._block_numbers, geometry.grid),
            **_split("threadIdx", self._thread_numbers, geometry.block),
        }
        self.who = self._stamps()
        #: The time for which groups of warps have arrived and which has not been awaited yet.
        self.arrived: int | None = None
        #: The number of barriers that a block had passed at its last fence for group products.
        self.fenced = np.full((self.blocks, 1), -1, np.int64)
        #: The last uninitialized element that was read.
        self.last_unwritten = ""

    @property
    def shape(self) -> tuple[int, int]:
        return self.blocks, self.threads

    def index(self, axis: str) -> Array:
        """The index of each lane along a thread axis."""
        return self._indices[axis]

    def extent(self, axis: str) -> int:
        level, _, letter = axis.partition(".")
        extents = self.geometry.grid if level == "blockIdx" else self.geometry.block
        return extents[AXES.index(letter)]

    def first_along(self, axes: Iterable[str]) -> Mask:
        """The threads with index 0 along these axes."""
        mask: Mask = None
        for axis in axes:
            if self.extent(axis) > 1:
                own = self.index(axis) == 0
                mask = own if mask is None else mask & own
        return mask

    def rows_of_blocks(self) -> Array:
        return np.arange(self.blocks)[:, None]

    def rows_of_threads(self) -> Array:
        return np.arange(self.blocks * self.threads).reshape(self.shape)

    def pass_barrier(self, active: Mask) -> int | None:
        """Count a barrier; gives a lane that does not reach it although others of its block do."""
        if active is None:
            self._barriers += 1
        else:
            reached = np.broadcast_to(active, self.shape)
            some = reached.any(axis=1, keepdims=True)
            missing = some & ~reached
            if missing.any():
                return int(np.argmax(missing))
            self._barriers += some
        self.who = self._stamps()
        self.arrived = None
        return None

    def pass_fence(self) -> None:
        self.fenced = self._barriers.copy()

    def first_of(self, bad: Array, index: Array) -> tuple[int, int]:
        """The first lane where `bad` holds, and its index."""
        in_vectors = bad.ndim in (1, 3)
        shape = (*self.shape, bad.shape[-1]) if in_vectors else self.shape
        spread = np.broadcast_to(bad, np.broadcast_shapes(bad.shape, shape))
        first = int(np.argmax(spread))
        number = int(np.broadcast_to(index, spread.shape).reshape(-1)[first])
        return first // (spread.shape[-1] if in_vectors else 1), number

    def remember(self, unwritten: Array, named: Callable[[int], str], index: Array) -> None:
        """Keep the location of an uninitialized read, for messages."""
        lane, number = self.first_of(unwritten, index)
        self.last_unwritten = f"{named(number)}, which {self.place(lane)} read"

    def _stamps(self) -> Array:
        return stamps(self._block_numbers, self._barriers, self._thread_numbers)

    def place(self, lane: int) -> Place:
        """The thread of a lane."""
        block, thread = divmod(lane, self.threads)
        return self.place_of(int(self._block_numbers[block, 0]), thread)

    def place_of(self, block: int, thread: int) -> Place:
        """The thread with these numbers, whether its block is among the lanes or not."""
        return Place(_unravel(block, self.geometry.grid), _unravel(thread, self.geometry.block))


def _split(level: str, numbers: Array, extents: tuple[int, ...]) -> dict[str, Array]:
    """The indices along each axis, x fastest."""
    indices: dict[str, Array] = {}
    for letter, extent in zip(AXES, extents, strict=True):
        indices[f"{level}.{letter}"] = numbers % extent
        numbers = numbers // extent
    return indices


def _unravel(number: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    parts: list[int] = []
    for extent in extents:
        number, part = divmod(number, extent)
        parts.append(part)
    return tuple(parts)


def both(active: Mask, condition: Array) -> Mask:
    """The lanes of `active` where a condition holds: `NOBODY` itself if there are none."""
    if condition.all():
        return active
    held = condition.copy() if active is None else active & condition
    return held if held.any() else NOBODY


def mask_for(mask: Mask, lanes: int, wanted: int) -> Mask:
    """A mask for vectors of one length, adapted to vectors of another."""
    if mask is None or lanes == wanted:
        return mask
    if lanes > 1:
        mask = np.asarray(mask.any(axis=-1))
    return mask[..., None] if wanted > 1 else mask


def in_warp(lane: Array) -> Array:
    """The thread numbers for lane numbers within the requesting threads' warps."""
    own = np.arange(int(lane.shape[-1]), dtype=np.int64)
    return own // WARP * WARP + lane % WARP


def of_threads(value: Array, source: Array, lanes: int = 1) -> Array:
    """The value, or vector, of other threads by their numbers (a shuffle)."""
    value = np.asarray(value)
    if lanes > 1 and value.ndim:
        each = np.broadcast_to(value, (*value.shape[:-1], lanes))
        return np.stack([of_threads(each[..., k], source) for k in range(lanes)], axis=-1)
    if value.ndim == 0 or value.shape[-1] == 1:
        return value
    shape = np.broadcast_shapes(value.shape, source.shape)
    return np.take_along_axis(np.broadcast_to(value, shape), np.broadcast_to(source, shape), -1)
