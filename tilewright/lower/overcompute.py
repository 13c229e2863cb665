"""Let tiles compute past the edge of intermediate buffers instead of testing for it.

    for i in range(7): for j in unrolled(16): block T(vj = i * 16 + j): where(i * 16 + j < 100); T[vj] = …
    -->
    the same without the condition: elements 100 … 111 exist, and nobody reads them

A conjunct of a block's predicate that only says "the element written is inside its buffer" is dropped when
the buffer is intermediate: no valid program reads what lies outside its shape, and `compact_buffers`
sizes the memory by what is touched. What the block reads from the function's parameters must be
inside them without the condition too.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Ranges, prove, prove_equal, simplify
from tilewright.ir import (
    Alloc,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    all_exprs,
    all_of,
    free_vars,
    map_children,
    substitute,
    walk,
)
from tilewright.lower.conjuncts import conjuncts


def overcompute(function: Function) -> Function:
    """Predicates that only protect the edges of intermediate buffers are gone."""
    local = {b for s in walk(function.body) if isinstance(s, Alloc) for b in s.buffers}
    ranges = Ranges.for_function(function)
    return function.with_body(_visit(function.body, ranges, frozenset(local)))


def _visit(stmt: Stmt, ranges: Ranges, local: frozenset[Buffer]) -> Stmt:
    if isinstance(stmt, Block):
        return _relax(stmt, ranges, local)
    if isinstance(stmt, For):
        ranges = ranges.with_extent(stmt.var, stmt.extent)
    return map_children(stmt, lambda s: _visit(s, ranges, local))


def _relax(block: Block, ranges: Ranges, local: frozenset[Buffer]) -> Stmt:
    parts = conjuncts(block.predicate)
    stores = [s for s in walk(block) if isinstance(s, Store)]
    if not parts or any(s.buffer not in local or s.mask is not None for s in stores):
        return block
    values = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    kept = [c for c in parts if not all(_only_guards(c, s, values, ranges) for s in stores)]
    if len(kept) == len(parts) or not _reads_stay_inside(block, values, ranges, local, kept):
        return block
    return replace(block, predicate=all_of(*kept))


def _only_guards(condition: Expr, store: Store, values: dict[Expr, Expr], ranges: Ranges) -> bool:
    """Whether `condition` says just that an index of `store` is below its extent."""
    if not isinstance(condition, Binary) or condition.op != "lt":
        return False
    distance = simplify(condition.b - condition.a, ranges)
    for index, extent in zip(store.indices, store.buffer.shape, strict=True):
        if not free_vars(index) <= values.keys():
            continue
        bound = substitute(index, values)  # type: ignore[arg-type]
        if prove_equal(distance, extent - bound, ranges):
            return True
    return False


def _reads_stay_inside(
    block: Block,
    values: dict[Expr, Expr],
    ranges: Ranges,
    local: frozenset[Buffer],
    kept: list[Expr],
) -> bool:
    for condition in kept:
        ranges = ranges.assuming(condition)
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer not in local]
    return all(_is_inside(load, values, ranges) for load in loads)


def _is_inside(load: Load, values: dict[Expr, Expr], ranges: Ranges) -> bool:
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        if not free_vars(index) <= values.keys():
            return False
        bound = substitute(index, values)  # type: ignore[arg-type]
        if not prove(bound < extent, ranges):
            return False
    return True
