"""Hoist phases' reads of read-only memory above the barriers that the phases wait at.

    for t in thread(32, "threadIdx.x"): S[t] = …
    for t in thread(32, "threadIdx.x"): B[t] = S[31 - t] + A[t]
    -->
    early = alloc(f32[1], scope="local")
    for t in thread(32, "threadIdx.x"): early[0] = A[t]
    for t in thread(32, "threadIdx.x"): S[t] = …
    for t in thread(32, "threadIdx.x"): B[t] = S[31 - t] + early[0]

Between the last two is a barrier, which no load can be moved across: threads would wait first for
S, and then for A. Where several such pairs of phases follow each other, the loads of one pair are
issued before the second phase of the previous pair, which hides their latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tilewright.ir import (
    Alloc,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    const,
    is_over_blocks,
    is_over_threads,
    loads_in,
    map_expr,
    map_stmt,
    renew,
    seq,
    walk,
)
from tilewright.lower.gpu.accesses import touched_by

#: The most bytes that a thread reads early: it has few registers.
_MOST: Final = 96


def read_early(function: Function) -> Function:
    """Hoist reads above barriers; vectors and unrolled loops have been written out by now."""
    return function.with_body(map_stmt(function.body, _in_launch))


def _in_launch(stmt: Stmt) -> Stmt | None:
    if not is_over_blocks(stmt):
        return None
    return _inside(stmt, touched_by(walk(stmt))[1])


def _inside(stmt: Stmt, written: set[Buffer]) -> Stmt:
    if isinstance(stmt, Alloc) or (isinstance(stmt, For) and is_over_blocks(stmt)):
        return replace(stmt, body=_inside(stmt.body, written))
    if isinstance(stmt, Seq):
        inner = [_inside(s, written) if isinstance(s, Alloc) else s for s in stmt.statements]
        return _in_a_row(inner, written)
    return stmt


def _in_a_row(phases: Sequence[Stmt], written: set[Buffer]) -> Stmt:
    before: list[list[Stmt]] = [[] for _ in phases]
    after = list(phases)
    buffers: list[Buffer] = []
    for k in range(1, len(phases)):
        if not _waits(phases[k - 1], phases[k]):
            continue
        parts = _Parts(written)
        reading, after[k] = parts.split(phases[k])
        if reading is not None:
            place = k - 2 if k >= 2 and is_over_threads(phases[k - 2]) else k - 1
            before[place].append(renew(reading, {}))
            buffers += parts.early.values()
    if not buffers:
        return seq(*phases)
    moved = seq(
        *(s for earlier, phase in zip(before, after, strict=True) for s in (*earlier, phase))
    )
    return Alloc(tuple(buffers), moved)


def _waits(first: Stmt, second: Stmt) -> bool:
    """Whether a phase reads what the previous one has written to shared memory."""
    if not is_over_threads(first) or not is_over_threads(second):
        return False
    put, taken = touched_by(walk(first))[1], touched_by(walk(second))[0]
    return any(b.scope == "shared" for b in put & taken)


@dataclass
class _Parts:
    """A phase split into what it reads early, and the rest."""

    written: set[Buffer]
    #: The buffers for loads that are made early, by the conditions around the loads.
    early: dict[tuple[tuple[If, ...], Load], Buffer] = field(
        default_factory=dict[tuple[tuple[If, ...], Load], Buffer]
    )
    room: int = _MOST

    def split(self, stmt: Stmt, around: tuple[If, ...] = ()) -> tuple[Stmt | None, Stmt]:
        """The early reads of a statement, and the statement without them."""
        if isinstance(stmt, Seq):
            pairs = [self.split(s, around) for s in stmt.statements]
            reading = [r for r, _ in pairs if r is not None]
            return (seq(*reading) if reading else None), seq(*(rest for _, rest in pairs))
        if isinstance(stmt, If) and stmt.otherwise is None:
            reading, rest = self.split(stmt.then, (*around, stmt))
            made = None if reading is None else replace(stmt, then=reading)
            return made, replace(stmt, then=rest)
        if isinstance(stmt, For) and is_over_threads(stmt):
            reading, rest = self.split(stmt.body, around)
            made = None if reading is None else replace(stmt, body=reading)
            return made, replace(stmt, body=rest)
        return self._of_store(stmt, around) if isinstance(stmt, Store) else (None, stmt)

    def _of_store(self, store: Store, around: tuple[If, ...]) -> tuple[Stmt | None, Stmt]:
        held: dict[Load, Buffer] = {}
        reading: list[Stmt] = []
        for load in dict.fromkeys(loads_in(store.value)):
            size = load.buffer.dtype.itemsize * load.dtype.lanes
            key = (around, load)
            if key not in self.early and self._stays(load) and size <= self.room:
                self.early[key] = Buffer(
                    "early", load.dtype.scalar, (load.dtype.lanes,), scope="local"
                )
                self.room -= size
                reading.append(Store(self.early[key], (_all_of(load),), load))
            if key in self.early:
                held[load] = self.early[key]

        def on_node(node: Expr) -> Expr | None:
            found = held.get(node) if isinstance(node, Load) else None
            return None if found is None else Load(found, (_all_of(node),))

        rest = replace(store, value=map_expr(store.value, on_node)) if held else store
        return (seq(*reading) if reading else None), rest

    def _stays(self, load: Load) -> bool:
        """Whether a load is of global memory that the launch does not write, at an index that does
        not depend on other loads."""
        is_global = load.buffer.scope == "global" and load.buffer not in self.written
        return is_global and not any(loads_in(e) for e in load.operands)


def _all_of(load: Expr) -> Expr:
    """The index, in its own buffer, of a loaded value."""
    lanes = load.dtype.lanes
    return const(0) if lanes == 1 else Ramp(const(0), const(1), lanes)
