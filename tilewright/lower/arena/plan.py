"""Places for the buffers of a host program in one piece of memory, the arena.

    a, b = alloc(f32[1000]), alloc(f32[1000])              arena = alloc(u8[8064])
    kernel.f(address_of(x[0]), address_of(a[0]), 0)   -->  kernel.f(…, address_of(arena[0]), 0)
    kernel.g(address_of(a[0]), address_of(b[0]), 0)        kernel.g(…, address_of(arena[4032]), 0)

A buffer is live from its first use to its last, and throughout a loop that uses it if it is
allocated outside. Buffers of constant size are placed by best fit in order of time; if that needs
more than what is live at once, by first fit, largest or longest-lived first, with a few repairs.
Those with symbolic dimensions share slots, each as large as the largest buffer it ever holds.
Buffers that the program itself loads from or stores to keep their own memory: they hold single
numbers.

Where calls run concurrently, buffers of different branches get different memory, unless that costs
too much (`branches`); not in programs with loops, nor for symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tilewright.arith import Ranges
from tilewright.ir import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    While,
    address_of,
    child_exprs,
    child_stmts,
    const,
    map_expr,
    map_function,
    seq,
    walk_expr,
)
from tilewright.lower.arena.branches import Branches
from tilewright.lower.arena.layout import LiveRange, layout, live_at_once, size_of, usual
from tilewright.lower.flatten import flat_index
from tilewright.support.memory import ALIGNMENT

#: Prefix of the names of calls that run kernels.
_KERNEL: Final = "kernel."


def plan_arena(function: Function, *, side_by_side: bool = False) -> Function:
    """The function with one buffer in place of those that only kernels access."""
    uses = _Uses(function)
    planned = uses.planned
    if not planned:
        return function
    ranges = Ranges.for_function(function)
    offsets, starts = layout(planned, ranges, uses.branches if side_by_side else None)
    slots = Buffer("slots", "int64", (len(starts),))
    loaded, stores = _kept(starts[:-1], slots)
    arena = Buffer("arena", "uint8", (starts[-1],), alignment=ALIGNMENT)
    places = {b: loaded.get(offset, offset) for b, offset in offsets.items()}
    body = _rewritten(function, places, arena).body
    if stores:
        body = Alloc((slots,), seq(*stores, body))
    return function.with_body(Alloc((arena,), body))


def _kept(starts: Sequence[Expr], slots: Buffer) -> tuple[dict[Expr, Expr], list[Stmt]]:
    """Loads of the starts of slots that are not constants, and the stores before, in order.

    Sizes of slots are long expressions: they are computed once, not simplified in every address.
    There may be hundreds of slots, so that variables would be nested too deeply.
    """
    loaded, stores = dict[Expr, Expr](), list[Stmt]()
    for number, (before, start) in enumerate(pairwise(starts)):
        assert isinstance(start, Binary) and start.a is before
        place = (const(number),)
        stores.append(Store(slots, place, loaded.get(before, before) + start.b))
        loaded[start] = Load(slots, place)
    return loaded, stores


@dataclass(frozen=True)
class ArenaPlace:
    """A buffer's place in the arena, and the steps of the program between which it is live."""

    name: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaPlan:
    """Where everything is, in bytes; symbolic dimensions count as a typical size."""

    size: int
    #: The most bytes that are live at any time: no plan needs less.
    live: int
    places: tuple[ArenaPlace, ...]
    #: The kernels that are called, in order, each with its step.
    calls: tuple[tuple[int, str], ...]
    #: How many of them form the longest dependent chain; the others can run concurrently.
    chain: int


def arena_plan(function: Function, *, side_by_side: bool = False) -> ArenaPlan:
    """The plan that `plan_arena` follows."""
    uses = _Uses(function)
    spans, ranges = uses.planned, Ranges.for_function(function)
    branches = uses.branches if side_by_side else None
    offsets, starts = layout(spans, ranges, branches)
    places = [
        ArenaPlace(b.name, usual(offsets[b]), usual(size_of(b, ranges)), span.first, span.last)
        for b, span in spans.items()
    ]
    live = live_at_once(spans.values(), [p.size for p in places])
    calls = tuple(uses.calls)
    chain = branches.chain if branches else len(calls)
    return ArenaPlan(usual(starts[-1]), live, tuple(places), calls, min(len(calls), chain))


class _Uses:
    """The times at which buffers are used; each statement is one step of time."""

    def __init__(self, function: Function) -> None:
        self.spans: dict[Buffer, LiveRange] = {}
        #: All times at which each buffer is used.
        self._users: dict[Buffer, list[int]] = {}
        self._has_loops = False
        #: Buffers that the function itself reads or writes.
        self.touched: set[Buffer] = set()
        #: The buffers allocated so far, with the number of loops around the allocation.
        self._depth: dict[Buffer, int] = {}
        self._loops: list[int] = []
        #: The kernels that are called, each with its time.
        self.calls: list[tuple[int, str]] = []
        self._time = 0
        self._walk(function.body)

    @property
    def planned(self) -> dict[Buffer, LiveRange]:
        """The buffers that only kernels access."""
        return {b: span for b, span in self.spans.items() if b not in self.touched}

    @property
    def branches(self) -> Branches | None:
        """What can run concurrently; None where calls are repeated."""
        return None if self._has_loops else Branches(self._users)

    def _walk(self, stmt: Stmt) -> None:
        self._time += 1
        if isinstance(stmt, Alloc):
            self._depth.update(dict.fromkeys(stmt.buffers, len(self._loops)))
        for expr in child_exprs(stmt):
            self._use_all(expr)
        if isinstance(stmt, Store):
            self.touched.add(stmt.buffer)
        is_loop = isinstance(stmt, For | While)
        self._has_loops |= is_loop
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
        # Buffers from outside a loop are needed from its first iteration to its last.
        first = self._loops[depth] if depth < len(self._loops) else self._time
        span = self.spans.setdefault(buffer, LiveRange(first, self._time))
        span.last = self._time
        self._users.setdefault(buffer, []).append(self._time)

    def _end_loop(self, start: int) -> None:
        """Buffers from outside that the loop uses are needed until it ends."""
        depth = len(self._loops)
        for buffer, span in self.spans.items():
            if span.last >= start and self._depth[buffer] <= depth:
                span.last = max(span.last, self._time)


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
