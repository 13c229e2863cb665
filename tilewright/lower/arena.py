"""Places for the buffers of a host program in one piece of memory, the arena.

    a, b = alloc(f32[1000]), alloc(f32[1000])              arena = alloc(u8[8064])
    kernel.f(address_of(x[0]), address_of(a[0]), 0)   -->  kernel.f(…, address_of(arena[0]), 0)
    kernel.g(address_of(a[0]), address_of(b[0]), 0)        kernel.g(…, address_of(arena[4032]), 0)

A buffer is live from its first use to its last, and through all of a loop that uses it from
outside. Sizes that are numbers are laid out by best fit in order of time; where that takes more
than what is live at once, by first fit, the largest or the longest-lived first, mended a few times.
Those over symbolic dimensions share slots, each as large as the largest buffer that it ever holds.
Buffers that the program itself loads from or stores to keep their own memory: they are single
numbers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from tilewright.arith import Ranges, simplify
from tilewright.ir import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Stmt,
    Store,
    Var,
    While,
    address_of,
    child_exprs,
    child_stmts,
    const,
    evaluate,
    free_vars,
    map_expr,
    map_function,
    maximum,
    seq,
    walk_expr,
)
from tilewright.lower.flatten import flat_index

_ALIGNMENT: Final = 64
#: What the names of calls begin with that run kernels.
_KERNEL: Final = "kernel."
#: Plans whose time grows with the square of their number are made for up to so many buffers.
_MANY: Final = 1000
#: How often a plan is mended that takes more than what is live at once.
_TRIES: Final = 20
#: What a symbolic dimension counts as when buffers are compared.
_USUAL: Final = 64


def plan_arena(function: Function) -> Function:
    """The function with one buffer in place of those that only kernels touch."""
    uses = _Uses(function)
    planned = {b: span for b, span in uses.spans.items() if b not in uses.touched}
    if not planned:
        return function
    offsets, starts = _layout(planned, Ranges.for_function(function))
    by_name, names = _named(starts[:-1])
    arena = Buffer("arena", "uint8", (starts[-1],), alignment=_ALIGNMENT)
    places = {b: by_name.get(offset, offset) for b, offset in offsets.items()}
    body = _rewritten(function, places, arena).body
    for var, value in reversed(names):
        body = Let(var, value, body)
    return function.with_body(Alloc((arena,), body))


def _named(starts: Sequence[Expr]) -> tuple[dict[Expr, Expr], list[tuple[Var, Expr]]]:
    """Names for the starts of slots that are not numbers, and what they stand for, in order.

    Sizes of slots are long: they are computed once, and not simplified in every address.
    """
    named, names = dict[Expr, Expr](), list[tuple[Var, Expr]]()
    for number, (before, start) in enumerate(pairwise(starts), 1):
        assert isinstance(start, Binary) and start.a is before
        var = Var(f"slot_{number}", start.dtype)
        names.append((var, named.get(before, before) + start.b))
        named[start] = var
    return named, names


@dataclass(frozen=True)
class Place:
    """A buffer's place in the arena, and the steps of the program between which it is live."""

    name: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaPlan:
    """Where everything is, in bytes; symbolic dimensions count as a usual size."""

    size: int
    #: The most that is live at any time: no plan takes less.
    live: int
    places: tuple[Place, ...]
    #: The kernels that are called, in order, each with its step.
    calls: tuple[tuple[int, str], ...]


def arena_plan(function: Function) -> ArenaPlan:
    """The plan that `plan_arena` follows."""
    uses = _Uses(function)
    spans = {b: span for b, span in uses.spans.items() if b not in uses.touched}
    ranges = Ranges.for_function(function)
    offsets, starts = _layout(spans, ranges)
    places = [
        Place(b.name, _usual(offsets[b]), _usual(_size(b, ranges)), span.first, span.last)
        for b, span in spans.items()
    ]
    live = _live_at_once(spans.values(), [p.size for p in places])
    return ArenaPlan(_usual(starts[-1]), live, tuple(places), tuple(uses.calls))


@dataclass(slots=True)
class _Span:
    """When a buffer is live."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return self.last - self.first

    def meets(self, other: _Span) -> bool:
        return self.first <= other.last and other.first <= self.last


class _Uses:
    """The times at which buffers are used, each statement being a step of time."""

    def __init__(self, function: Function) -> None:
        self.spans: dict[Buffer, _Span] = {}
        #: Buffers that the function itself reads or writes.
        self.touched: set[Buffer] = set()
        #: Allocated so far, with the number of loops around the allocation.
        self._depth: dict[Buffer, int] = {}
        self._loops: list[int] = []
        #: The kernels that are called, each with its time.
        self.calls: list[tuple[int, str]] = []
        self._time = 0
        self._walk(function.body)

    def _walk(self, stmt: Stmt) -> None:
        self._time += 1
        if isinstance(stmt, Alloc):
            self._depth.update(dict.fromkeys(stmt.buffers, len(self._loops)))
        for expr in child_exprs(stmt):
            self._use_all(expr)
        if isinstance(stmt, Store):
            self.touched.add(stmt.buffer)
        is_loop = isinstance(stmt, For | While)
        if is_loop:
            self._loops.append(self._time)
        for child in child_stmts(stmt):
            self._walk(child)
        if is_loop:
            self._end_loop(self._loops.pop())

    def _use_all(self, root: Expr) -> None:
        addressed: set[Expr] = set()
        for e in walk_expr(root):
            if isinstance(e, Call) and e.name == "address_of":
                addressed.add(e.args[0])
            elif isinstance(e, Call) and e.name.startswith(_KERNEL):
                self.calls.append((self._time, e.name.removeprefix(_KERNEL)))
            if isinstance(e, Load) and e.buffer in self._depth:
                self._use(e.buffer)
                if e not in addressed:
                    self.touched.add(e.buffer)

    def _use(self, buffer: Buffer) -> None:
        depth = self._depth[buffer]
        # What was there before a loop is needed in its first trip and in its last.
        first = self._loops[depth] if depth < len(self._loops) else self._time
        span = self.spans.setdefault(buffer, _Span(first, self._time))
        span.last = self._time

    def _end_loop(self, start: int) -> None:
        """Buffers from outside that were used in the loop are needed to its end."""
        depth = len(self._loops)
        for buffer, span in self.spans.items():
            if span.last >= start and self._depth[buffer] <= depth:
                span.last = max(span.last, self._time)


# ---- layout -------------------------------------------------------------------------------------


def _layout(spans: dict[Buffer, _Span], ranges: Ranges) -> tuple[dict[Buffer, Expr], list[Expr]]:
    """The offset of every buffer, in bytes; the starts of slots, and the end of the last."""
    sizes = {b: _size(b, ranges) for b in spans}
    fixed = {b: int(s.value) for b, s in sizes.items() if isinstance(s, Const)}
    places, total = _least({b: spans[b] for b in fixed}, fixed)
    offsets: dict[Buffer, Expr] = {b: const(o) for b, o in places.items()}
    rest = {b: sizes[b] for b in spans if b not in fixed}
    slots, slot_sizes = _slots({b: spans[b] for b in rest}, rest, ranges)
    starts: list[Expr] = [const(total)]
    for size in slot_sizes:
        starts.append(starts[-1] + size)
    offsets.update({b: starts[slot] for b, slot in slots.items()})
    return offsets, starts


def _size(buffer: Buffer, ranges: Ranges) -> Expr:
    size: Expr = const(buffer.dtype.itemsize)
    for extent in buffer.shape:
        size = size * extent
    return simplify((size + (_ALIGNMENT - 1)) // _ALIGNMENT * _ALIGNMENT, ranges)


def _by_time(spans: dict[Buffer, _Span]) -> Iterator[tuple[Buffer, list[Buffer]]]:
    """Each buffer in order of its first use, with those that have died since the one before."""
    ends = sorted(spans, key=lambda b: spans[b].last)
    ended = 0
    for buffer in sorted(spans, key=lambda b: spans[b].first):
        dead: list[Buffer] = []
        while ended < len(ends) and spans[ends[ended]].last < spans[buffer].first:
            dead.append(ends[ended])
            ended += 1
        yield buffer, dead


_Plan = tuple[dict[Buffer, int], int]


def _least(spans: dict[Buffer, _Span], sizes: dict[Buffer, int]) -> _Plan:
    """A plan that takes no more than what is live at once, or the least of those tried."""
    best = _best_fit(spans, sizes)
    live = _live_at_once(spans.values(), sizes.values())
    if len(spans) > _MANY or best[1] == live:
        return best
    near = {b: [o for o in spans if o is not b and spans[o].meets(spans[b])] for b in spans}
    by_size = sorted(spans, key=lambda b: (-sizes[b], -spans[b].length))
    by_length = sorted(spans, key=lambda b: (-spans[b].length, -sizes[b]))
    for order in (by_size, by_length):
        for plan in _repaired(order, near, sizes):
            best = min(best, plan, key=lambda p: p[1])
            if best[1] == live:
                return best
    return best


def _repaired(
    order: list[Buffer], near: dict[Buffer, list[Buffer]], sizes: dict[Buffer, int]
) -> Iterator[_Plan]:
    """Plans by first fit; what ended highest is placed first in the next."""
    for _ in range(_TRIES):
        offsets, end = plan = _first_fit(order, near, sizes)
        yield plan
        top = [b for b in order if offsets[b] + sizes[b] == end]
        order = [*top, *(b for b in order if offsets[b] + sizes[b] != end)]


def _live_at_once(spans: Iterable[_Span], sizes: Iterable[int]) -> int:
    """The most that is live at any time; no plan takes less."""
    changes: list[tuple[int, int]] = []
    for span, size in zip(spans, sizes, strict=True):
        changes += [(span.first, size), (span.last + 1, -size)]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _first_fit(
    order: Sequence[Buffer], near: dict[Buffer, list[Buffer]], sizes: dict[Buffer, int]
) -> _Plan:
    """Each buffer in the first gap between those that were placed before and are live with it."""
    offsets: dict[Buffer, int] = {}
    for buffer in order:
        at, taken = 0, [(offsets[b], sizes[b]) for b in near[buffer] if b in offsets]
        for start, size in sorted(taken):
            if start - at >= sizes[buffer]:
                break
            at = max(at, start + size)
        offsets[buffer] = at
    return offsets, max((offsets[b] + sizes[b] for b in offsets), default=0)


def _best_fit(spans: dict[Buffer, _Span], sizes: dict[Buffer, int]) -> _Plan:
    free = _FreeList()
    offsets: dict[Buffer, int] = {}
    for buffer, dead in _by_time(spans):
        for other in dead:
            free.give(offsets[other], sizes[other])
        offsets[buffer] = free.take(sizes[buffer])
    return offsets, free.end


class _FreeList:
    """Gaps below `end`: by offset, to join neighbours, and by size, to find the best one."""

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
        # Grow the gap at the very end, if there is one.
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
    spans: dict[Buffer, _Span], sizes: dict[Buffer, Expr], ranges: Ranges
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
                # Most are covered by one that the slot held before.
                slot_sizes[chosen] = simplify(maximum(slot_sizes[chosen], size), ranges)
        slots[buffer] = chosen
    return slots, slot_sizes


def _fitting(size: Expr, free: Sequence[int], slot_sizes: Sequence[Expr]) -> int | None:
    """A free slot of this very size; else the least that is large enough, else the largest."""
    for slot in free:
        if slot_sizes[slot] is size:
            return slot
    if not free:
        return None
    wanted = _usual(size)
    large = [s for s in free if _usual(slot_sizes[s]) >= wanted]
    if large:
        return min(large, key=lambda s: _usual(slot_sizes[s]))
    return max(free, key=lambda s: _usual(slot_sizes[s]))


def _usual(size: Expr) -> int:
    values: dict[Var, int] = dict.fromkeys(free_vars(size), _USUAL)
    return int(evaluate(size, values))


# ---- rewriting ----------------------------------------------------------------------------------


def _rewritten(function: Function, offsets: dict[Buffer, Expr], arena: Buffer) -> Function:
    memo: dict[Expr, Expr] = {}

    def on_node(e: Expr) -> Expr | None:
        if not isinstance(e, Call) or e.name != "address_of":
            return None
        element = e.args[0]
        if not isinstance(element, Load) or element.buffer not in offsets:
            return None
        start, buffer = offsets[element.buffer], element.buffer
        position = flat_index(buffer, element.indices)
        if position is not const(0):
            start = start + position * buffer.dtype.itemsize
        return address_of(Load(arena, (start,)))

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Alloc) or not any(b in offsets for b in stmt.buffers):
            return None
        left = tuple(b for b in stmt.buffers if b not in offsets)
        return Alloc(left, stmt.body) if left else seq(stmt.body)

    return map_function(function, on_stmt, lambda e: map_expr(e, on_node, memo))
