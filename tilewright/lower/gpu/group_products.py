"""Waits and fences for products of groups of warps (`ir.warps`), which run asynchronously.

    for z, y, x in threads: wgmma(…)      -->      products_start()
                                                   for z, y, x in threads: wgmma(…)
                                                   products_commit()
                                                   products_finish(sums)

Loops with pipelined copies wait later (`stages`). Elements of operands are stored where the product
looks for them (`swizzled`).

Products read shared memory through another path than threads write it: a fence is needed between
the writes of an operand and the barrier after them.

    for z, y, x in threads: As[…] = …     -->      for z, y, x in threads: As[…] = …
    barrier()                                      products_fence()
                                                   barrier()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilewright.arith import prove_equal, simplify
from tilewright.ir import (
    EXCHANGED_BYTES,
    GROUP_PRODUCTS,
    SWIZZLE_BYTES,
    Binary,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    While,
    address_of,
    call,
    child_stmts,
    const,
    is_arrival,
    is_barrier,
    is_grid_barrier,
    is_over_threads,
    map_children,
    map_expr,
    map_function,
    seq,
    swizzled,
    walk,
)
from tilewright.lower.gpu.accesses import touched_by


def wait_for_products(function: Function) -> Function:
    """Insert waits after phases with products of groups."""
    return function.with_body(_waiting(function.body))


def _waiting(stmt: Stmt) -> Stmt:
    if not is_over_threads(stmt):
        return map_children(stmt, _waiting)
    sums = _sums_of(stmt)
    if not sums:
        return stmt
    finish = (
        _effect("products_finish", address_of(Load(b, (const(0),))), const(_size(b)), const(0))
        for b in sums
    )
    return seq(_effect("products_start"), stmt, _effect("products_commit"), *finish)


def swizzle_operands(function: Function) -> Function:
    """Store elements of operands where products of groups look for them."""
    operands = set(group_operands(function.body))
    if not operands:
        return function

    def on_node(node: Expr) -> Expr | None:
        if isinstance(node, Call) and node.name in GROUP_PRODUCTS:
            return node
        if not isinstance(node, Load) or node.buffer not in operands:
            return None
        (place,) = node.indices
        return Load(node.buffer, (_swizzled(place, node.buffer.dtype.itemsize),), node.mask)

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Store) or stmt.buffer not in operands:
            return None
        (place,) = stmt.indices
        return replace(stmt, indices=(_swizzled(place, stmt.buffer.dtype.itemsize),))

    memo: dict[Expr, Expr] = {}
    return map_function(function, on_stmt, lambda e: map_expr(e, on_node, memo))


def fence_operands(function: Function) -> Function:
    """Insert fences between writes of operands and the barriers after them."""
    operands = set(group_operands(function.body))
    return function.with_body(_fenced(function.body, operands, False)[0]) if operands else function


def _fenced(stmt: Stmt, operands: set[Buffer], is_due: bool) -> tuple[Stmt, bool]:
    """A statement with fences, given whether one is due before it, and whether one is due after."""
    if is_barrier(stmt) or is_grid_barrier(stmt) or is_arrival(stmt):
        return (seq(_effect("products_fence"), stmt) if is_due else stmt), False
    if is_over_threads(stmt) or not child_stmts(stmt):
        return stmt, is_due or _writes(stmt, operands)
    if isinstance(stmt, Seq):
        placed: list[Stmt] = []
        for child in stmt.statements:
            done, is_due = _fenced(child, operands, is_due)
            placed.append(done)
        return seq(*placed), is_due
    # The end of a loop's body precedes its next iteration.
    before = is_due or (isinstance(stmt, For | While) and _leaves_due(stmt.body, operands))
    after = [is_due]

    def inside(child: Stmt) -> Stmt:
        done, due = _fenced(child, operands, before)
        after.append(due)
        return done

    return map_children(stmt, inside), any(after)


def _writes(stmt: Stmt, operands: set[Buffer]) -> bool:
    """Whether operands are written, or copies to them complete."""
    calls = (s.call for s in walk(stmt) if isinstance(s, Evaluate))
    arrives = any(isinstance(c, Call) and c.name == "async_wait" for c in calls)
    return arrives or bool(touched_by(walk(stmt))[1] & operands)


def _leaves_due(body: Stmt, operands: set[Buffer]) -> bool:
    return _fenced(body, operands, False)[1]


def _swizzled(place: Expr, itemsize: int) -> Expr:
    """Swizzle an index; the terms that swizzling does not affect are added afterwards."""
    if isinstance(place, Ramp) and place.stride is const(1) and _stays_together(place, itemsize):
        return Ramp(_swizzled(place.base, itemsize), place.stride, place.dtype.lanes)
    if place.dtype.is_vector:
        return swizzled(place, itemsize)
    whole, rest = const(0), const(0)
    for term in _terms(place):
        if prove_equal(simplify(term % (SWIZZLE_BYTES // itemsize)), const(0)):
            whole = whole + term
        else:
            rest = rest + term
    return swizzled(rest, itemsize) + whole


def _stays_together(place: Ramp, itemsize: int) -> bool:
    """Whether a vector is within the bytes that swizzling moves as a whole."""
    lanes = place.dtype.lanes
    is_part = EXCHANGED_BYTES % (lanes * itemsize) == 0
    return is_part and prove_equal(simplify(place.base % lanes), const(0))


def _terms(place: Expr) -> Iterator[Expr]:
    if isinstance(place, Binary) and place.op == "add":
        yield from _terms(place.a)
        yield from _terms(place.b)
    else:
        yield place


def _sums_of(stmt: Stmt) -> list[Buffer]:
    """The sums that products in a statement add to."""
    return list(dict.fromkeys(_buffers_of(product)[0] for product in _products(stmt)))


def _products(stmt: Stmt) -> Iterator[Call]:
    for s in walk(stmt):
        if isinstance(s, Evaluate) and isinstance(s.call, Call) and s.call.name in GROUP_PRODUCTS:
            yield s.call


def group_operands(stmt: Stmt) -> Iterator[Buffer]:
    """The operands of groups' products that are in shared memory."""
    for product in _products(stmt):
        yield from (b for b in _buffers_of(product)[1:] if b.scope == "shared")


def _buffers_of(product: Call) -> list[Buffer]:
    """Sums, A and B."""
    loads = [a.operands[0] for a in product.args[:3]]
    return [load.buffer for load in loads if isinstance(load, Load)]


def _size(buffer: Buffer) -> int:
    extents = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    assert len(extents) == buffer.ndim, "a thread's own memory has known sizes"
    return prod(extents)


def _effect(name: str, *args: Expr) -> Evaluate:
    return Evaluate(call(name, *args))
