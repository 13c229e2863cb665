"""Shrink intermediate buffers, and allocate them as far inside as possible.

    T = alloc(f32[1024, 1024])
    for i in range(16): for j …: (write T[i * 64 + a, b]; read T[i * 64 + c, d])
    -->
    for i in range(16):
        T = alloc(f32[64, 1024])
        …: (write T[a, b]; read T[c, d])

A buffer moves into a loop if no value in it outlives an iteration: either each iteration writes
everything before it reads it, or iterations access disjoint parts. On GPUs the scope decides: every
block of threads has its own shared memory, and every thread its own local memory; global memory is
allocated by the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tilewright.arith import (
    Ranges,
    conjuncts,
    linear,
    prove,
    simplify,
)
from tilewright.ir import (
    Alloc,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    child_exprs,
    child_stmts,
    const,
    free_vars,
    is_over_blocks,
    is_over_threads,
    loads_in,
    map_expr,
    map_stmt,
    seq,
    substitute,
)
from tilewright.lower.coverage import GuardedAccess, covers, hull, joined


def compact_buffers(function: Function) -> Function:
    """Allocate every intermediate buffer as far inside, and as small, as its uses allow."""
    body = function.body
    ranges = Ranges.for_function(function)
    if isinstance(body, Alloc):
        kept: Stmt = body.body
        for buffer in body.buffers:
            kept = _settle(kept, buffer, ranges)
        return function.with_body(kept)
    return function


def _settle(stmt: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
    """`stmt` with `buffer` allocated at the innermost place that contains all its uses."""
    if not _uses(stmt, buffer):
        return stmt
    if isinstance(stmt, Seq):
        return _settle_in_row(stmt, buffer, ranges)
    if isinstance(stmt, For) and _may_enter(stmt, buffer, ranges):
        inner = ranges.with_extent(stmt.var, stmt.extent)
        return replace(stmt, body=_settle(stmt.body, buffer, inner))
    if isinstance(stmt, Alloc):
        return replace(stmt, body=_settle(stmt.body, buffer, ranges))
    return _place(stmt, buffer, ranges)


def _settle_in_row(stmt: Seq, buffer: Buffer, ranges: Ranges) -> Stmt:
    using = [k for k, s in enumerate(stmt.statements) if _uses(s, buffer)]
    before, after = stmt.statements[: using[0]], stmt.statements[using[-1] + 1 :]
    middle = seq(*stmt.statements[using[0] : using[-1] + 1])
    settle = _place if len(using) > 1 else _settle
    return seq(*before, settle(middle, buffer, ranges), *after)


def _uses(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer in _touched(stmt)


@lru_cache(maxsize=4096)  # each buffer is searched for in the same statements
def _touched(stmt: Stmt) -> frozenset[Buffer]:
    """The buffers that `stmt` accesses."""
    if isinstance(stmt, Block):
        return frozenset(region.buffer for region in (*stmt.reads, *stmt.writes))
    own = {load.buffer for expr in child_exprs(stmt) for load in loads_in(expr)}
    if isinstance(stmt, Store):
        own.add(stmt.buffer)
    return frozenset(own).union(*map(_touched, child_stmts(stmt)))


def _accesses(
    stmt: Stmt, buffer: Buffer, loops: tuple[For, ...], conditions: tuple[Expr, ...]
) -> Iterator[GuardedAccess]:
    """Accesses to `buffer` in program order; a statement's reads come before its writes."""
    if not _uses(stmt, buffer):
        return
    if isinstance(stmt, Block):
        yield from _region_accesses(stmt, buffer, loops, conditions)
        return
    for expr in child_exprs(stmt):
        for load in loads_in(expr):
            if load.buffer is buffer:
                yield _access(load.indices, False, loops, conditions, stmt)
    if isinstance(stmt, Store) and stmt.buffer is buffer:
        yield _access(stmt.indices, True, loops, conditions, stmt)
    if isinstance(stmt, For):
        loops = (*loops, stmt)
    for child in child_stmts(stmt):
        below = conditions
        if isinstance(stmt, While):
            below = (*conditions, stmt.condition)
        if isinstance(stmt, If):
            below = (*conditions, stmt.condition if child is stmt.then else ~stmt.condition)
        yield from _accesses(child, buffer, loops, below)


def _access(
    indices: tuple[Expr, ...],
    is_store: bool,
    loops: tuple[For, ...],
    conditions: tuple[Expr, ...],
    stmt: Stmt,
) -> GuardedAccess:
    """An access whose vector lanes count as iterations of a loop."""
    plain = list[Expr]()
    for index in indices:
        if isinstance(index, Ramp):
            lane = Var("lane", index.base.dtype)
            loops = (*loops, For(lane, const(index.dtype.lanes), "serial", stmt))
            index = simplify(index.base + lane * index.stride)
        plain.append(index)
    return GuardedAccess(tuple(plain), is_store, loops, conditions)


def _region_accesses(
    block: Block, buffer: Buffer, loops: tuple[For, ...], conditions: tuple[Expr, ...]
) -> Iterator[GuardedAccess]:
    """Accesses of an opaque block: its regions, as if in loops over them."""
    values = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    conditions = (*conditions, *conjuncts(block.predicate))
    for regions, is_store in ((block.reads, False), (block.writes, True)):
        for region in regions:
            if region.buffer is not buffer:
                continue
            over = [Var("x") for _ in region.ranges]
            inner = [
                For(x, simplify(substitute(r.extent, values)), "serial", block)
                for x, r in zip(over, region.ranges, strict=True)
            ]
            starts = [substitute(r.start, values) for r in region.ranges]
            indices = tuple(simplify(a + x) for a, x in zip(starts, over, strict=True))
            yield GuardedAccess(indices, is_store, (*loops, *inner), conditions)


# ---- may the buffer move into a loop? -----------------------------------------------------------


def _may_enter(loop: For, buffer: Buffer, ranges: Ranges) -> bool:
    """Whether the buffer may be allocated inside a loop that contains all its uses."""
    if is_over_blocks(loop):
        return buffer.scope in ("shared", "local")
    if is_over_threads(loop):
        return buffer.scope == "local"
    return _is_private(loop, buffer, ranges)


def _is_private(loop: For, buffer: Buffer, ranges: Ranges) -> bool:
    """Whether no iteration reads what another one has written."""
    inner = ranges.with_extent(loop.var, loop.extent)
    return _writes_first(loop, buffer, inner) or _touches_its_own(loop, buffer, inner)


def _writes_first(loop: For, buffer: Buffer, inner: Ranges) -> bool:
    """Whether every iteration writes what it reads before it reads it."""
    written: list[GuardedAccess] = []
    for access in _accesses(loop.body, buffer, (), ()):
        if access.is_store:
            whole = joined(written[-1], access) if written else None
            written[-1 if whole else len(written) :] = [whole or access]
        elif not any(covers(store, access, buffer, inner) for store in written):
            return False
    return True


def _touches_its_own(loop: For, buffer: Buffer, inner: Ranges) -> bool:
    """Whether iterations access disjoint parts: the loop moves the access by at least its size,
    along one dimension or several together."""
    hulls = [hull(a, inner) for a in _accesses(loop.body, buffer, (), ())]
    if None in hulls:
        return False
    single = set[Expr]()
    for dimension, extent in enumerate(buffer.shape):
        low, size = _span([h[dimension] for h in hulls if h is not None], extent, inner)
        step = linear(low).terms.get(loop.var, 0)
        if isinstance(size, Const) and step >= int(size.value) and _moves_alone(low, loop.var):
            return True
        if size is const(1):
            single.add(low)
    return _is_determined(loop.var, single)


def _is_determined(value: Expr, digits: set[Expr]) -> bool:
    """Whether these digits of a value, such as v // 3 and v % 3, determine it."""
    if value in digits:
        return True
    last = [d for d in digits if isinstance(d, Binary) and d.op == "floormod" and d.a is value]
    return any(_is_determined(simplify(value // d.b), digits) for d in last)


def _moves_alone(index: Expr, var: Var) -> bool:
    """Whether a variable is a separate term of an index, and in no other term."""
    return all(term is var or var not in free_vars(term) for term in linear(index).terms)


# ---- size and place -----------------------------------------------------------------------------


def _place(stmt: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
    """Allocate `buffer` here, just large enough for the elements that `stmt` accesses."""
    accesses = list(_accesses(stmt, buffer, (), ()))
    hulls = [hull(a, ranges) for a in accesses]
    starts, extents = list[Expr](), list[Expr]()
    for dimension, extent in enumerate(buffer.shape):
        ends = None if None in hulls else [h[dimension] for h in hulls if h is not None]
        start, size = _span(ends, extent, ranges)
        if dimension and buffer.strides is not None:
            # Something depends on the strides: keep the layout.
            start, size = const(0), extent
        starts.append(start)
        extents.append(size)
    if _is_unchanged(buffer, starts, extents):
        return Alloc((buffer,), stmt)
    smaller = buffer.with_(shape=extents)
    return Alloc((smaller,), _shifted(stmt, buffer, smaller, starts, ranges))


def _is_unchanged(buffer: Buffer, starts: list[Expr], extents: list[Expr]) -> bool:
    same = all(a is b for a, b in zip(buffer.shape, extents, strict=True))
    return same and all(s is const(0) for s in starts)


def _span(ends: list[tuple[Expr, Expr]] | None, extent: Expr, ranges: Ranges) -> tuple[Expr, Expr]:
    """The first element accessed, and their number; the whole dimension if unsure."""
    if ends is None:
        return const(0), extent
    low, high = ends[0]
    for other_low, other_high in ends[1:]:
        low = _lesser(low, other_low, ranges)
        high = _lesser(other_high, high, ranges, greater=True)
        if low is None or high is None:
            return const(0), extent
    size = simplify(high - low + 1, ranges)
    if not isinstance(size, Const) or loads_in(low):
        return const(0), extent
    # Iterations past the end, which conditions exclude, may reach beyond the buffer.
    if isinstance(extent, Const) and size.value >= extent.value:
        return const(0), extent
    return simplify(low, ranges), size


def _lesser(a: Expr, b: Expr, ranges: Ranges, *, greater: bool = False) -> Expr | None:
    if prove(a <= b, ranges):
        return b if greater else a
    if prove(b <= a, ranges):
        return a if greater else b
    return None


def _moved(index: Expr, start: Expr, ranges: Ranges) -> Expr:
    if isinstance(index, Ramp):
        return Ramp(simplify(index.base - start, ranges), index.stride, index.dtype.lanes)
    return simplify(index - start, ranges)


def _shifted(
    stmt: Stmt, buffer: Buffer, smaller: Buffer, starts: list[Expr], ranges: Ranges
) -> Stmt:
    def moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(_moved(i, s, ranges) for i, s in zip(indices, starts, strict=True))

    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer is buffer:
            return Load(smaller, moved(e.indices), e.mask)
        return None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer is buffer:
            return replace(s, buffer=smaller, indices=moved(s.indices))
        return None

    memo: dict[Expr, Expr] = {}
    return map_stmt(stmt, on_stmt, lambda e: map_expr(e, on_node, memo))
