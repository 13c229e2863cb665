"""Buffers that every iteration of a loop fills before reading: each can have its own copy."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Ranges, conjuncts, knowing_nothing, prove, simplify, symbolic_bounds
from tilewright.ir import (
    Alloc,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Range,
    Seq,
    Var,
    const,
    free_vars,
    is_const,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.facts.access import RegionAccess, inner_vars


def is_private(tree: Tree, loop: For, buffer: Buffer) -> bool:
    """Nothing outside `loop` accesses the buffer, so that each iteration can have its own copy."""
    if buffer in tree.function.buffers:
        return False
    touching = (*tree.readers(buffer), *tree.writers(buffer))
    return all(tree.is_above(loop, block) for block in touching)


def each_read_is_covered(
    tree: Tree, loop: For, accesses: Sequence[RegionAccess], ranges: Ranges
) -> bool:
    """Within one iteration of `loop`, every element read was written before by another block."""
    for number, read in enumerate(accesses):
        if read.is_write:
            continue
        earlier = [w for w in accesses[:number] if w.is_write and w.block is not read.block]
        if not any(_covers(tree, loop, write, read, ranges) for write in earlier):
            return False
    return True


def _covers(tree: Tree, loop: For, write: RegionAccess, read: RegionAccess, ranges: Ranges) -> bool:
    if not _is_reached(tree, loop, write.block):
        return False
    over = inner_vars(loop)
    stops = _stops(write, over, ranges)
    if stops is None:
        return False
    parts = zip(write.ranges, read.ranges, write.buffer.shape, stops, strict=True)
    return all(_contains(w, r, extent, over, ranges, ends) for w, r, extent, ends in parts)


def _contains(
    write: Range, read: Range, extent: Expr, over: set[Var], ranges: Ranges, stops: Sequence[Expr]
) -> bool:
    """Whether the written region, clipped at `stops`, contains the one that is read."""
    written, wanted = _ends(write, over, ranges), _ends(read, over, ranges)
    if written is None:
        return False
    low = prove(written[0] <= 0, ranges) or (wanted and prove(written[0] <= wanted[0], ranges))
    high = all(
        prove(end >= extent, ranges) or (wanted and prove(end >= wanted[1], ranges))
        for end in (written[1], *stops)
    )
    return bool(low and high)


def _ends(part: Range, over: set[Var], ranges: Ranges) -> tuple[Expr, Expr] | None:
    first = symbolic_bounds(part.start, ranges, over)
    last = symbolic_bounds(part.start + part.extent, ranges, over)
    return None if first is None or last is None else (first[0], last[1])


def _is_reached(tree: Tree, loop: For, block: Block) -> bool:
    """In every iteration of `loop`, `block` runs unless its own predicate forbids it."""
    for above in tree.ancestors(block):
        if above is loop:
            break
        if not isinstance(above, For | Seq | Alloc):
            return False
    return True


def _stops(write: RegionAccess, over: set[Var], ranges: Ranges) -> list[list[Expr]] | None:
    """Where the predicate cuts off what a block writes, per dimension; None if it may skip other
    elements too. Bounds of the domain do not count where the domain covers the buffer."""
    block = write.block
    stops: list[list[Expr]] = [[] for _ in write.ranges]
    within = ranges
    for it, value in zip(block.iters, block.bindings, strict=True):
        within = within.assuming(value < it.extent)
    for condition in conjuncts(block.predicate):
        if prove(condition, within) and _fills_buffers(block):
            continue
        stop = _stop(condition, write, over)
        if stop is None:
            return None
        stops[stop[0]].append(stop[1])
    return stops


def _stop(condition: Expr, write: RegionAccess, over: set[Var]) -> tuple[int, Expr] | None:
    """The dimension that a condition `part < end` cuts off, and where.

    The index is `part` plus terms that are constant in the iteration; no other index depends on it.
    """
    if not (isinstance(condition, Binary) and condition.op == "lt"):
        return None
    part, end = condition.a, condition.b
    moving = [free_vars(r.start) & free_vars(part) & over for r in write.ranges]
    touched = [k for k, variables in enumerate(moving) if variables]
    if len(touched) != 1 or free_vars(end) & over:
        return None
    index = write.ranges[touched[0]]
    rest = simplify(index.start - part)
    if free_vars(rest) & over or not is_const(index.extent, 1):
        return None
    return touched[0], simplify(rest + end)


def _fills_buffers(block: Block) -> bool:
    known = block if block.writes else with_inferred_regions(block)
    ranges = knowing_nothing()
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    over = {it.var for it in block.iters}
    whole = (
        _contains(part, Range(const(0), extent), extent, over, ranges, ())
        for region in known.writes
        for part, extent in zip(region.ranges, region.buffer.shape, strict=True)
    )
    return all(whole)
