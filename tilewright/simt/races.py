"""Race detection: who has read and written each element of shared memory.

An access is identified by one number: the thread's block, the count of barriers that the block has
passed, and the thread. For each element only the last read and write are kept, which suffices:
accesses without a race are all of one block, and between two barriers all of one thread, except for
several readers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: Bits of the thread, and of barriers and thread together.
_THREAD_BITS: Final = 11
_BLOCK_SHIFT: Final = 32
_LATEST: Final = np.int64((1 << _BLOCK_SHIFT) - 1)
_MANY_THREADS: Final = np.int64((1 << _THREAD_BITS) - 1)
_MANY_BLOCKS: Final = np.int64((1 << 63) - 1)
_NOBODY: Final = -1
#: The XOR of two access numbers of one block, with a barrier between them, is at least the first of
#: these, and less than their sum.
_ONE_BARRIER: Final = np.uint64(1 << _THREAD_BITS)
_BARRIERS: Final = np.uint64((1 << _BLOCK_SHIFT) - (1 << _THREAD_BITS))


def stamps(blocks: Array, barriers: Array, threads: Array) -> Array:
    """The numbers that identify accesses."""
    return (blocks << _BLOCK_SHIFT) | (barriers << _THREAD_BITS) | threads


class Race(NamedTuple):
    """A racing access, by its index among those in progress, and the earlier conflicting access.

    `block` and `thread` are None if there were several.
    """

    access: int
    verb: str
    block: int | None
    thread: int | None


class Races:
    """The accesses to the elements of one memory."""

    def __init__(self, elements: int) -> None:
        self._writer = np.full(elements, _NOBODY, np.int64)
        self._reader = np.full(elements, _NOBODY, np.int64)

    def forget(self) -> None:
        self._writer.fill(_NOBODY)
        self._reader.fill(_NOBODY)

    def barriers_before(self, at: Array) -> Array:
        """The number of barriers that the block had passed when each element was written, -1 if it
        was not written; blocks are not distinguished."""
        writer = self._writer[at]
        passed = (writer & _LATEST) >> _THREAD_BITS
        return np.where(writer < 0, _NOBODY, passed)

    def read(self, at: Array, who: Array) -> Race | None:
        """Record simultaneous reads; gives a race if there is one."""
        race = _clash(self._writer[at], who, "wrote")
        if race is not None:
            return race
        before = self._reader[at]
        if (before == who | _MANY_THREADS).all():
            return None
        last = _both(before, who)
        self._reader[at] = last
        # Of several simultaneous readers of an element, only one has been recorded.
        noted = self._reader[at]
        others = noted != last
        if others.any():
            places, last, noted = at[others], last[others], noted[others]
            self._reader[places] = last | _MANY_THREADS
            self._reader[places[(noted ^ last) >> _BLOCK_SHIFT != 0]] = _MANY_BLOCKS
        return None

    def write(self, at: Array, who: Array) -> Race | None:
        """Record simultaneous writes; gives a race if there is one."""
        race = _clash(self._writer[at], who, "wrote") or _clash(self._reader[at], who, "read")
        if race is not None:
            return race
        self._writer[at] = who
        noted = self._writer[at]
        return _first(noted != who, noted, "writes") if (noted != who).any() else None


def _clash(before: Array, who: Array, verb: str) -> Race | None:
    """The first access that conflicts with another block, or another thread since a barrier."""
    apart = before ^ who
    # Fast path: most accesses conflict with nothing, or follow a barrier of their own block.
    if (apart.view(np.uint64) - _ONE_BARRIER < _BARRIERS).all() or (before < 0).all():
        return None
    clashes = (before >= 0) & (apart != 0)
    clashes &= (apart >> _BLOCK_SHIFT != 0) | (apart >> _THREAD_BITS == 0)
    return _first(clashes, before, verb) if clashes.any() else None


def _first(clashes: Array, before: Array, verb: str) -> Race:
    access = int(np.argmax(clashes))
    other = int(before[access])
    thread = other & int(_MANY_THREADS)
    return Race(
        access,
        verb,
        None if other == _MANY_BLOCKS else other >> _BLOCK_SHIFT,
        None if thread == _MANY_THREADS else thread,
    )


def _both(before: Array, who: Array) -> Array:
    """The previous readers together with a new one."""
    apart = before ^ who
    known = (before >= 0) & (apart != 0)
    if not known.any():
        return who
    last = np.where(known & (apart >> _THREAD_BITS == 0), who | _MANY_THREADS, who)
    return np.where(known & (apart >> _BLOCK_SHIFT != 0), _MANY_BLOCKS, last)
