"""Races: who has read and written each element of memory that threads share.

An access is known by one number: the thread's block, the count of barriers that the block has
passed, and the thread. Per element only the last of each is kept, which is enough: accesses that
do not race are all of one block, and between two barriers all of one thread. Readers may be many.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: Bits of a thread's number, and of the barriers and the thread together.
_THREAD_BITS: Final = 11
_BLOCK_SHIFT: Final = 32
_LATEST: Final = np.int64((1 << _BLOCK_SHIFT) - 1)
_MANY_THREADS: Final = np.int64((1 << _THREAD_BITS) - 1)
_MANY_BLOCKS: Final = np.int64((1 << 63) - 1)
_NOBODY: Final = -1
#: The exclusive or of two numbers of one block, between which there was a barrier, is at least the
#: first of these, and less than their sum.
_ONE_BARRIER: Final = np.uint64(1 << _THREAD_BITS)
_BARRIERS: Final = np.uint64((1 << _BLOCK_SHIFT) - (1 << _THREAD_BITS))


def stamps(blocks: Array, barriers: Array, threads: Array) -> Array:
    """The numbers that accesses are known by."""
    return (blocks << _BLOCK_SHIFT) | (barriers << _THREAD_BITS) | threads


class Race(NamedTuple):
    """An access, by its position among those tried, and what it meets: who did what before.

    `block` and `thread` are None where there were many.
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
        """How many barriers its block had passed when each element was written, -1 if it was not;
        of more blocks than one, that is not told apart."""
        writer = self._writer[at]
        passed = (writer & _LATEST) >> _THREAD_BITS
        return np.where(writer < 0, _NOBODY, passed)

    def read(self, at: Array, who: Array) -> Race | None:
        """Note that elements are read, at once; gives a race where there is one."""
        race = _clash(self._writer[at], who, "wrote")
        if race is not None:
            return race
        before = self._reader[at]
        if (before == who | _MANY_THREADS).all():
            return None
        last = _both(before, who)
        self._reader[at] = last
        # Several may read one element at once, of whom one has been noted.
        noted = self._reader[at]
        others = noted != last
        if others.any():
            places, last, noted = at[others], last[others], noted[others]
            self._reader[places] = last | _MANY_THREADS
            self._reader[places[(noted ^ last) >> _BLOCK_SHIFT != 0]] = _MANY_BLOCKS
        return None

    def write(self, at: Array, who: Array) -> Race | None:
        """Note that elements are written, at once; gives a race where there is one."""
        race = _clash(self._writer[at], who, "wrote") or _clash(self._reader[at], who, "read")
        if race is not None:
            return race
        self._writer[at] = who
        noted = self._writer[at]
        return _first(noted != who, noted, "writes") if (noted != who).any() else None


def _clash(before: Array, who: Array, verb: str) -> Race | None:
    """The first access that meets one of another block, or of another thread since a barrier."""
    apart = before ^ who
    # Most accesses meet nobody, or their own block before a barrier.
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
    """The readers until now, and one more."""
    apart = before ^ who
    known = (before >= 0) & (apart != 0)
    if not known.any():
        return who
    last = np.where(known & (apart >> _THREAD_BITS == 0), who | _MANY_THREADS, who)
    return np.where(known & (apart >> _BLOCK_SHIFT != 0), _MANY_BLOCKS, last)
