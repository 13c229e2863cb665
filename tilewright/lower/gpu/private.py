"""Privatize local buffers that live across phases: each thread has its own.

    acc = alloc(f32[256, 8], scope="local")
    for t in thread(256, "threadIdx.x"): acc[t, i] = …
    -->
    acc = alloc(f32[8], scope="local")
    for t in thread(256, "threadIdx.x"): acc[i] = …

Seen as plain loops, such a buffer has elements for each thread: its first dimensions are indexed by
the loops over threads. Every thread has its own buffer, so these dimensions are dropped. Reads of a
neighbour's elements in the same warp become shuffles (`ir.warps`):

    for t in thread(32, "threadIdx.x"): sum[t] = part[t // 4 * 4] + part[t // 4 * 4 + 1]
    -->
    for t in thread(32, "threadIdx.x"):
        sum = of_lane(part, t // 4 * 4, 4) + of_lane(part, t // 4 * 4 + 1, 4)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tilewright.arith import Ranges, knowing_nothing, prove_equal, simplify
from tilewright.ir import (
    WARP,
    Alloc,
    Buffer,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    While,
    call,
    cast,
    child_exprs,
    child_stmts,
    const,
    is_const,
    is_over_blocks,
    is_over_threads,
    listing,
    loads_in,
    map_children,
    map_expr,
    map_function,
    walk,
    walk_expr,
)
from tilewright.support.dtype import int32
from tilewright.support.errors import UserError

#: The axis along which the threads of a warp are adjacent.
_LANES: Final = "threadIdx.x"


@dataclass(frozen=True)
class _Access:
    """One load or store, with the loops over threads around it."""

    stmt: Stmt
    load: Load
    threads: tuple[For, ...]
    is_store: bool = False
    #: Whether some threads of a phase may not execute it.
    is_conditional: bool = False

    @property
    def buffer(self) -> Buffer:
        return self.load.buffer

    def axes(self) -> tuple[str, ...] | None:
        """The axes that index the first dimensions, up to the last loop over threads.

        A dimension of extent 1 has none (""). None if some loop over threads is missing.
        """
        axis_of = {loop.var: loop.axis for loop in self.threads}
        axes: list[str] = []
        for index, extent in zip(self.load.indices, self.buffer.shape, strict=True):
            if isinstance(index, Var) and index in axis_of:
                axes.append(axis_of[index])
            elif is_const(extent, 1):
                axes.append("")
            else:
                break
        while axes and not axes[-1]:
            axes.pop()
        wanted = {loop.axis for loop in self.threads if not is_const(loop.extent, 1)}
        return tuple(axes) if wanted <= set(axes) else None

    def neighbours(self, axes: tuple[str, ...]) -> int:
        """The size of the group of adjacent threads within which each reads another one's element,
        or the whole warp if all threads take part; 0 if there is none, or if the phase writes the
        buffer."""
        loops = {loop.axis: loop for loop in self.threads}
        along = loops.get(_LANES)
        places = list(zip(axes, self.load.indices, strict=False))
        variables = {axis: loop.var for axis, loop in loops.items()}
        own = all(axis in ("", _LANES) or index is variables.get(axis) for axis, index in places)
        lanes = [index for axis, index in places if axis == _LANES]
        if self.is_store or not own or len(lanes) != 1 or along is None:
            return 0
        if not is_const(along.extent, WARP) or self.buffer in _stored(self.threads[0]):
            return 0
        ranges = knowing_nothing().with_extent(along.var, along.extent)
        for other in (x for x in walk(self.threads[0]) if isinstance(x, For)):
            ranges = ranges.with_extent(other.var, other.extent)
        counts = (1 << k for k in range(1, WARP.bit_length()))
        near = next((n for n in counts if prove_equal(lanes[0] // n, along.var // n, ranges)), 0)
        return near if self.is_conditional or not near else WARP

    def __str__(self) -> str:
        return str(self.load)


def drop_thread_dimensions(function: Function) -> Function:
    """Drop the thread dimensions of launches' local buffers; accesses still have all indices."""
    function = function.with_body(_simplified_calls(function.body, Ranges.for_function(function)))
    smaller: dict[Buffer, tuple[Buffer, int]] = {}
    remote: dict[Load, tuple[Expr, int]] = {}
    for launch in _launches(function.body):
        found = dict[Buffer, list[_Access]]()
        for access in _accesses(launch, ()):
            found.setdefault(access.buffer, []).append(access)
        for buffer in _living_across_phases(launch):
            dropped = _dropped(function, found.get(buffer, []), remote)
            if dropped:
                strides = None if buffer.strides is None else buffer.strides[dropped:]
                less = buffer.with_(shape=buffer.shape[dropped:], strides=strides)
                smaller[buffer] = less, dropped
    return _without(function, smaller, remote) if smaller else function


def _simplified_calls(stmt: Stmt, ranges: Ranges) -> Stmt:
    """Simplify the indices of tensor instructions' calls, since their blocks are lowered late."""
    if isinstance(stmt, Evaluate):
        return map_children(stmt, lambda s: s, lambda e: simplify(e, ranges))
    inner = ranges.with_extent(stmt.var, stmt.extent) if isinstance(stmt, For) else ranges
    return map_children(stmt, lambda s: _simplified_calls(s, inner))


def _launches(stmt: Stmt) -> Iterator[Stmt]:
    if is_over_blocks(stmt):
        yield stmt
        return
    for child in child_stmts(stmt):
        yield from _launches(child)


def _living_across_phases(stmt: Stmt) -> Iterator[Buffer]:
    """The local buffers that are allocated outside phases."""
    if is_over_threads(stmt):
        return
    if isinstance(stmt, Alloc):
        yield from (b for b in stmt.buffers if b.scope == "local")
    for child in child_stmts(stmt):
        yield from _living_across_phases(child)


def _accesses(stmt: Stmt, threads: tuple[For, ...], conditional: bool = False) -> Iterator[_Access]:
    if isinstance(stmt, Store):
        yield _Access(stmt, Load(stmt.buffer, stmt.indices), threads, is_store=True)
    for expr in child_exprs(stmt):
        chosen = conditional or any(isinstance(e, Select) for e in walk_expr(expr))
        for load in loads_in(expr):
            yield _Access(stmt, load, threads, is_conditional=chosen)
    if isinstance(stmt, For) and is_over_threads(stmt):
        threads = (*threads, stmt)
    inside = conditional or (bool(threads) and isinstance(stmt, If | While))
    for child in child_stmts(stmt):
        yield from _accesses(child, threads, inside)


def _stored(stmt: Stmt) -> set[Buffer]:
    return {s.buffer for s in walk(stmt) if isinstance(s, Store)}


def _dropped(
    function: Function, accesses: list[_Access], remote: dict[Load, tuple[Expr, int]]
) -> int:
    """How many dimensions to drop, on which all accesses must agree; except reads of neighbours'
    elements, which are added to `remote`: the thread, and the size of its group."""
    if not accesses:
        return 0
    first = next((a.axes() for a in accesses if a.is_store), accesses[0].axes())
    for access in accesses:
        axes = access.axes()
        if axes != first and first and (count := access.neighbours(first)):
            remote[access.load] = access.load.indices[first.index(_LANES)], count
            continue
        if axes is None:
            names = " and ".join(loop.axis for loop in access.threads)
            reason = f"its first dimensions are not indexed by the loops over {names}"
            raise _refused(function, access, reason)
        if axes != first:
            reason = f"it is indexed by {_named(axes)} here, by {_named(first or ())} elsewhere"
            raise _refused(function, access, reason)
    return len(first or ())


def _named(axes: tuple[str, ...]) -> str:
    return ", ".join(a for a in axes if a) or "no loop over threads"


def _refused(function: Function, access: _Access, reason: str) -> UserError:
    return UserError(
        f"cannot keep `{access}` in a thread's own memory",
        reason=reason,
        remedy=f"give {access.buffer.name} such dimensions (transform_layout), or scope shared",
        listing=listing(function, {access.stmt: reason}),
    )


def _without(
    function: Function,
    smaller: dict[Buffer, tuple[Buffer, int]],
    remote: dict[Load, tuple[Expr, int]],
) -> Function:
    def on_node(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in smaller:
            return None
        buffer, dropped = smaller[node.buffer]
        own = Load(buffer, node.indices[dropped:], node.mask)
        if node not in remote:
            return own
        lane, count = remote[node]
        return call("of_lane", own, cast(lane, int32), const(count))

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer in smaller:
            buffer, dropped = smaller[stmt.buffer]
            return replace(stmt, buffer=buffer, indices=stmt.indices[dropped:])
        if isinstance(stmt, Alloc) and not smaller.keys().isdisjoint(stmt.buffers):
            return replace(stmt, buffers=tuple(smaller.get(b, (b,))[0] for b in stmt.buffers))
        return None

    memo: dict[Expr, Expr] = {}
    return map_function(function, on_stmt, lambda e: map_expr(e, on_node, memo))
