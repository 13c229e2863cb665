"""Offsets for buffers that are live at different times: best fit, first fit, or slots."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

from tilewright.arith import Ranges, simplify
from tilewright.ir import Buffer, Const, Expr, Var, const, evaluate, free_vars, maximum
from tilewright.lower.arena.branches import Branches
from tilewright.support.memory import ALIGNMENT

#: Quadratic algorithms are used for at most this many buffers.
_MANY: Final = 1000
#: How often a plan that needs more than what is live at once is repaired.
_TRIES: Final = 20
#: The value assumed for a symbolic dimension when buffers are compared.
_USUAL: Final = 64
#: The most extra bytes for running branches concurrently. Where it would be more, one launch is
#: large enough to keep a device busy.
_MOST_FOR_BRANCHES: Final = 64 << 20


@dataclass(slots=True)
class LiveRange:
    """When a buffer is live."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return self.last - self.first


def layout(
    spans: dict[Buffer, LiveRange], ranges: Ranges, branches: Branches | None = None
) -> tuple[dict[Buffer, Expr], list[Expr]]:
    """The offset of every buffer, in bytes; and the starts of slots, with the end of the last."""
    sizes = {b: size_of(b, ranges) for b in spans}
    fixed = {b: int(s.value) for b, s in sizes.items() if isinstance(s, Const)}
    places, total = _placed({b: spans[b] for b in fixed}, fixed, branches)
    offsets: dict[Buffer, Expr] = {b: const(o) for b, o in places.items()}
    rest = {b: sizes[b] for b in spans if b not in fixed}
    slots, slot_sizes = _slots({b: spans[b] for b in rest}, rest, ranges)
    starts: list[Expr] = [const(total)]
    for size in slot_sizes:
        starts.append(starts[-1] + size)
    offsets.update({b: starts[slot] for b, slot in slots.items()})
    return offsets, starts


def size_of(buffer: Buffer, ranges: Ranges) -> Expr:
    size: Expr = const(buffer.dtype.itemsize)
    for extent in buffer.shape:
        size = size * extent
    return simplify((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT, ranges)


def _by_time(spans: dict[Buffer, LiveRange]) -> Iterator[tuple[Buffer, list[Buffer]]]:
    """Each buffer in order of its first use, with those that have died since the previous one."""
    ends = sorted(spans, key=lambda b: spans[b].last)
    ended = 0
    for buffer in sorted(spans, key=lambda b: spans[b].first):
        dead: list[Buffer] = []
        while ended < len(ends) and spans[ends[ended]].last < spans[buffer].first:
            dead.append(ends[ended])
            ended += 1
        yield buffer, dead


_Plan = tuple[dict[Buffer, int], int]


def _placed(
    spans: dict[Buffer, LiveRange], sizes: dict[Buffer, int], branches: Branches | None
) -> _Plan:
    """The smallest plan; with room for concurrent branches where that costs little more."""
    least = _least(spans, sizes)
    if branches is None or len(spans) > _MANY:
        return least
    near = branches.apart(spans)
    plans = (next(_repaired(order, near, sizes)) for order in _orders(spans, sizes))
    wide = min(plans, key=lambda p: p[1])
    return wide if wide[1] - least[1] <= _MOST_FOR_BRANCHES else least


def _orders(spans: dict[Buffer, LiveRange], sizes: dict[Buffer, int]) -> tuple[list[Buffer], ...]:
    """The orders in which first fit is tried."""
    by_size = sorted(spans, key=lambda b: (-sizes[b], -spans[b].length))
    by_length = sorted(spans, key=lambda b: (-spans[b].length, -sizes[b]))
    return by_size, by_length


def _least(spans: dict[Buffer, LiveRange], sizes: dict[Buffer, int]) -> _Plan:
    """A plan that needs no more than what is live at once, or the smallest of those tried."""
    best = _best_fit(spans, sizes)
    live = live_at_once(spans.values(), sizes.values())
    if len(spans) > _MANY or best[1] == live:
        return best
    near = _live_together(spans)
    for order in _orders(spans, sizes):
        for plan in _repaired(order, near, sizes):
            best = min(best, plan, key=lambda p: p[1])
            if best[1] == live:
                return best
    return best


def _live_together(spans: dict[Buffer, LiveRange]) -> dict[Buffer, list[Buffer]]:
    """For each buffer, those whose live ranges overlap its own."""
    near: dict[Buffer, list[Buffer]] = {b: [] for b in spans}
    live: dict[Buffer, None] = {}
    for buffer, dead in _by_time(spans):
        for other in dead:
            del live[other]
        for other in live:
            near[other].append(buffer)
        near[buffer].extend(live)
        live[buffer] = None
    return near


def _repaired(
    order: list[Buffer], near: dict[Buffer, list[Buffer]], sizes: dict[Buffer, int]
) -> Iterator[_Plan]:
    """Plans by first fit; in each, the previous one's buffers at the highest offsets go first."""
    tried: set[tuple[Buffer, ...]] = set()
    while len(tried) < _TRIES and (*order,) not in tried:
        tried.add((*order,))
        offsets, end = plan = _first_fit(order, near, sizes)
        yield plan
        top = [b for b in order if offsets[b] + sizes[b] == end]
        order = [*top, *(b for b in order if offsets[b] + sizes[b] != end)]


def live_at_once(spans: Iterable[LiveRange], sizes: Iterable[int]) -> int:
    """The most bytes that are live at any time; no plan needs less."""
    changes: list[tuple[int, int]] = []
    for span, size in zip(spans, sizes, strict=True):
        changes += [(span.first, size), (span.last + 1, -size)]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _first_fit(
    order: Sequence[Buffer], near: dict[Buffer, list[Buffer]], sizes: dict[Buffer, int]
) -> _Plan:
    """Put each buffer into the first gap between those already placed that are live with it."""
    offsets: dict[Buffer, int] = {}
    for buffer in order:
        at, taken = 0, [(offsets[b], sizes[b]) for b in near[buffer] if b in offsets]
        for start, size in sorted(taken):
            if start - at >= sizes[buffer]:
                break
            at = max(at, start + size)
        offsets[buffer] = at
    return offsets, max((offsets[b] + sizes[b] for b in offsets), default=0)


def _best_fit(spans: dict[Buffer, LiveRange], sizes: dict[Buffer, int]) -> _Plan:
    free = _FreeList()
    offsets: dict[Buffer, int] = {}
    for buffer, dead in _by_time(spans):
        for other in dead:
            free.give(offsets[other], sizes[other])
        offsets[buffer] = free.take(sizes[buffer])
    return offsets, free.end


class _FreeList:
    """Gaps below `end`: by offset, to join neighbours, and by size, to find the best fit."""

    def __init__(self) -> None:
        self.end = 0
        self._sizes: dict[int, int] = {}
        self._starts_by_end: dict[int, int] = {}
        self._order: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        if not size:
            return 0
        at = bisect_left(self._order, (size, 0))
        if at < len(self._order):
            found, start = self._order[at]
            self._remove(start)
            self._insert(start + size, found - size)
            return start
        # Extend the gap at the very end, if there is one.
        start = self._starts_by_end.get(self.end, self.end)
        if start != self.end:
            self._remove(start)
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        if not size:
            return
        if start + size in self._sizes:
            size += self._remove(start + size)
        if start in self._starts_by_end:
            start = self._starts_by_end[start]
            size += self._remove(start)
        self._insert(start, size)

    def _insert(self, start: int, size: int) -> None:
        if size:
            self._sizes[start] = size
            self._starts_by_end[start + size] = start
            insort(self._order, (size, start))

    def _remove(self, start: int) -> int:
        size = self._sizes.pop(start)
        del self._starts_by_end[start + size]
        del self._order[bisect_left(self._order, (size, start))]
        return size


def _slots(
    spans: dict[Buffer, LiveRange], sizes: dict[Buffer, Expr], ranges: Ranges
) -> tuple[dict[Buffer, int], list[Expr]]:
    """The slot of every buffer, and the sizes of the slots."""
    slots: dict[Buffer, int] = {}
    slot_sizes: list[Expr] = []
    free: list[int] = []
    for buffer, dead in _by_time(spans):
        free.extend(slots[other] for other in dead)
        size = sizes[buffer]
        chosen = _fitting(size, free, slot_sizes)
        if chosen is None:
            chosen = len(slot_sizes)
            slot_sizes.append(size)
        else:
            free.remove(chosen)
            if slot_sizes[chosen] is not size:
                # Most sizes are covered by one that the slot already has.
                slot_sizes[chosen] = simplify(maximum(slot_sizes[chosen], size), ranges)
        slots[buffer] = chosen
    return slots, slot_sizes


def _fitting(size: Expr, free: Sequence[int], slot_sizes: Sequence[Expr]) -> int | None:
    """A free slot of just this size; else the smallest that is large enough, else the largest."""
    for slot in free:
        if slot_sizes[slot] is size:
            return slot
    if not free:
        return None
    wanted = usual(size)
    large = [s for s in free if usual(slot_sizes[s]) >= wanted]
    if large:
        return min(large, key=lambda s: usual(slot_sizes[s]))
    return max(free, key=lambda s: usual(slot_sizes[s]))


@lru_cache(maxsize=4096)
def usual(size: Expr) -> int:
    values: dict[Var, int] = dict.fromkeys(free_vars(size), _USUAL)
    return int(evaluate(size, values))
