"""Dependencies between launches: those that touch the same bytes, where at least one writes.

Launches are numbered as they are added. Memory is split into segments, each with its last writers
and its readers since.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

#: Start and end (exclusive) addresses.
Span = tuple[int, int]
_EVERYWHERE: Final = (0, 1 << 64)


class Touched(NamedTuple):
    """The memory that a launch reads and writes."""

    reads: Sequence[Span] = ()
    writes: Sequence[Span] = ()

    @classmethod
    def of(cls, access: Iterable[str], places: Iterable[int], sizes: Iterable[int]) -> Touched:
        """The memory touched by a kernel with these accesses to buffers at `places`."""
        spans = [(a, (p, p + n)) for a, p, n in zip(access, places, sizes, strict=True) if n]
        return cls([s for a, s in spans if "r" in a], [s for a, s in spans if "w" in a])

    def writing(self, span: Span) -> Touched:
        """The same, with one more span written."""
        return self._replace(writes=[*self.writes, span])


#: For launches whose accesses are unknown.
EVERYTHING: Final = Touched(writes=(_EVERYWHERE,))


class _Held(NamedTuple):
    """The launches that touched a segment."""

    writers: frozenset[int] = frozenset()
    readers: frozenset[int] = frozenset()


class Ordering:
    """The launches so far, and the memory they touched."""

    def __init__(self) -> None:
        #: The starts of segments; each ends where the next begins.
        self._starts: list[int] = [0]
        self._held: list[_Held] = [_Held()]
        #: The predecessors of each launch, as a bit mask.
        self._before: list[int] = []

    def add(self, touched: Touched) -> tuple[int, ...]:
        """Add a launch; gives its direct dependencies, without those implied by others."""
        number = len(self._before)
        found: set[int] = set()
        for span in touched.reads:
            for k in self._segments(span):
                found |= self._held[k].writers
        for span in touched.writes:
            for k in self._segments(span):
                found |= self._held[k].writers | self._held[k].readers
        for span in touched.reads:
            for k in self._segments(span):
                held = self._held[k]
                self._held[k] = _Held(held.writers, held.readers | {number})
        for span in touched.writes:
            self._write(span, number)
        return self._added(found)

    def last(self) -> tuple[int, ...]:
        """The launches that no other waits for."""
        waited = 0
        for before in self._before:
            waited |= before
        return tuple(k for k in range(len(self._before)) if not waited >> k & 1)

    def fence(self) -> None:
        """Let all later launches wait for all earlier ones."""
        self._starts, self._held = [0], [_Held(frozenset(self.last()))]

    def _segments(self, span: Span) -> range:
        """The segments of a span, split at its ends."""
        first, last = map(self._cut, span)
        return range(first, last)

    def _cut(self, place: int) -> int:
        """The segment that begins at an address, split off if necessary."""
        at = bisect_left(self._starts, place)
        if at == len(self._starts) or self._starts[at] != place:
            self._starts.insert(at, place)
            self._held.insert(at, self._held[at - 1])
        return at

    def _write(self, span: Span, number: int) -> None:
        own = self._segments(span)
        self._starts[own.start : own.stop] = [span[0]]
        self._held[own.start : own.stop] = [_Held(frozenset({number}))]

    def _added(self, found: set[int]) -> tuple[int, ...]:
        waits: list[int] = []
        before = 0
        for other in sorted(found, reverse=True):
            if not before >> other & 1:
                waits.append(other)
                before |= self._before[other] | 1 << other
        self._before.append(before)
        return tuple(reversed(waits))

    def is_before(self, first: int, second: int) -> bool:
        """Whether `second` waits for `first`, directly or not."""
        return bool(self._before[second] >> first & 1)
