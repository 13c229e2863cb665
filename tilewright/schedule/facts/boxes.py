"""Boxes of elements that blocks access while some loops run, and loops that cover such boxes.

A box is one `Range` per dimension, in terms of the loops that do not run. It may be larger than
what is accessed, never smaller, and may exceed the buffer where accesses are guarded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from tilewright.arith import Ranges, bounds, linear, prove, simplify, symbolic_bounds
from tilewright.ir import (
    Block,
    Const,
    Expr,
    For,
    Iter,
    Range,
    Region,
    Stmt,
    Var,
    const,
    free_vars,
    is_const,
    maximum,
    minimum,
    substitute,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import needed, nest
from tilewright.schedule.facts.access import RegionAccess
from tilewright.schedule.facts.inverse import Solution, solved
from tilewright.schedule.facts.place import loops_between, variables

#: One range per dimension; None for the whole dimension.
Box = tuple[Range | None, ...]


# ---- from accesses to boxes ---------------------------------------------------------------------


def box_around(tree: Tree, accesses: Sequence[RegionAccess], inside: Stmt | None) -> Box:
    """The smallest known box around accesses to one buffer while the loops below `inside` run."""
    found = [box_of(tree, access, inside) for access in accesses]
    ranges = ranges_inside(tree, inside)
    result = found[0]
    for other in found[1:]:
        result = tuple(_hull(a, b, ranges) for a, b in zip(result, other, strict=True))
    shape, loops = accesses[0].buffer.shape, tree.loops.keys()
    pairs = zip(result, shape, strict=True)
    return tuple(_tidy(part, extent, loops, ranges) for part, extent in pairs)


def ranges_inside(tree: Tree, stmt: Stmt | None) -> Ranges:
    """What is known in the body of a loop, at another statement, or (for None) everywhere."""
    ranges = tree.ranges_at(tree.function.body if stmt is None else stmt)
    return ranges.with_extent(stmt.var, stmt.extent) if isinstance(stmt, For) else ranges


def box_of(tree: Tree, access: RegionAccess, inside: Stmt | None) -> Box:
    """The box of one access while the loops below `inside` run."""
    over = variables(loops_between(tree, inside, access.block))
    ranges = tree.ranges_at(access.block)
    return tuple(spread(part, over, ranges) for part in access.ranges)


def spread(part: Range, over: Iterable[Var], ranges: Ranges) -> Range | None:
    """The union of a range while some variables run; None if it is not known."""
    over = set(over)
    first = symbolic_bounds(part.start, ranges, over)
    last = symbolic_bounds(part.start + (part.extent - 1), ranges, over)
    if first is None or last is None:
        return None
    return Range(first[0], simplify(last[1] - first[0] + 1, ranges))


def _hull(a: Range | None, b: Range | None, ranges: Ranges) -> Range | None:
    if a is None or b is None:
        return None
    if a == b:
        return a
    low = simplify(minimum(a.start, b.start), ranges)
    high = simplify(maximum(a.start + a.extent, b.start + b.extent), ranges)
    return Range(low, simplify(high - low, ranges))


def _tidy(part: Range | None, extent: Expr, loops: Collection[Var], ranges: Ranges) -> Range | None:
    """The range with an extent independent of loops; None where it is the whole dimension."""
    if part is None:
        return None
    length = part.extent
    if not free_vars(length).isdisjoint(loops):
        most = bounds(length, ranges).high
        if most is None:
            return None
        length = const(max(most, 0))
    if prove(length >= extent, ranges):
        return None
    return Range(part.start, length)


def contains(outer: Range | None, inner: Range | None, extent: Expr, ranges: Ranges) -> bool:
    """Whether one range contains another, of which only 0 … extent - 1 counts."""
    if outer is None:
        return True
    low = prove(outer.start <= 0, ranges)
    high = prove(outer.start + outer.extent >= extent, ranges)
    if inner is not None:
        low = low or prove(outer.start <= inner.start, ranges)
        ends = outer.start + outer.extent, inner.start + inner.extent
        high = high or prove(ends[0] >= ends[1], ranges)
    return low and high


def box_is_full(tree: Tree, write: RegionAccess, inside: Stmt | None) -> bool:
    """Whether a write covers its whole box while the loops below `inside` run."""
    loops = loops_between(tree, inside, write.block)
    over, ranges = variables(loops), tree.ranges_at(write.block)
    if any(not free_vars(loop.extent).isdisjoint(over) for loop in loops):
        return False
    used: set[Var] = set()
    for part in write.ranges:
        running = free_vars(part.start) & over
        if running & used or not _has_no_gaps(part, running, ranges):
            return False
        used |= running
    return True


def _has_no_gaps(part: Range, over: Collection[Var], ranges: Ranges) -> bool:
    """Whether a sum of running variables takes all values between its minimum and maximum."""
    steps: list[tuple[int, int | None]] = []
    for atom, factor in linear(part.start).terms.items():
        if free_vars(atom).isdisjoint(over):
            continue
        if not isinstance(atom, Var):
            return False
        steps.append((abs(factor), bounds(atom, ranges).high))
    if not isinstance(part.extent, Const):
        return not steps
    reach = int(part.extent.value)
    for factor, last in sorted(steps, key=lambda step: step[0]):
        if factor > reach:
            return False
        # A variable of unknown range may take only one value.
        reach += factor * (last or 0)
    return True


# ---- from boxes to loops ------------------------------------------------------------------------


class Rebuilt(NamedTuple):
    """A block in new loops."""

    nest: Stmt
    loops: tuple[For, ...]


def instances_touching(
    tree: Tree,
    region: Region,
    accesses: Sequence[RegionAccess],
    iters: Sequence[Iter],
    inside: Stmt | None,
) -> dict[Var, Range]:
    """The ranges of iterators in which `region` touches what the accesses touch.

    The accesses are those of other blocks while the loops below `inside` run. Iterators about which
    nothing is known are left out: they run over their whole domains.
    """
    found = _given_by_box(region, box_around(tree, accesses, inside), iters)
    used = frozenset[Var]().union(*(free_vars(r.start) for r in region.ranges))
    open_ones = [it for it in iters if it.var in used and it.var not in found]
    points = all(is_const(r.extent, 1) for x in (region, *accesses) for r in x.ranges)
    if not open_ones or not points:
        return found
    solution = solved([r.start for r in region.ranges], [it for it in iters if it.var in used])
    if solution is None:
        return found
    by_points = _given_by_points(tree, solution, accesses, open_ones, inside)
    return {**by_points, **found}


def _given_by_box(region: Region, box: Box, iters: Sequence[Iter]) -> dict[Var, Range]:
    """The ranges of iterators that are alone in an index, up to a constant, taken from the box."""
    found: dict[Var, Range] = {}
    known = {it.var for it in iters}
    for own, part in zip(region.ranges, box, strict=True):
        total = linear(own.start)
        atoms = list(total.terms.items())
        if part is None or len(atoms) != 1 or atoms[0][1] != 1 or not is_const(own.extent, 1):
            continue
        atom = atoms[0][0]
        if isinstance(atom, Var) and atom in known and atom not in found:
            found[atom] = Range(simplify(part.start - total.constant), part.extent)
    return found


def _given_by_points(
    tree: Tree,
    solution: Solution,
    accesses: Sequence[RegionAccess],
    iters: Sequence[Iter],
    inside: Stmt | None,
) -> dict[Var, Range]:
    """The ranges of iterators that follow from solving the accesses' indices for them."""
    ranges, loops = ranges_inside(tree, inside), tree.loops.keys()
    parts: dict[Var, list[Range | None]] = {it.var: [] for it in iters}
    for access in accesses:
        values = solution.at([r.start for r in access.ranges])
        over = variables(loops_between(tree, inside, access.block))
        here = tree.ranges_at(access.block)
        for var, found in parts.items():
            found.append(spread(Range(values[var], const(1)), over, here))
    hulls = {
        it.var: _tidy(
            reduce(lambda a, b: _hull(a, b, ranges), parts[it.var]), it.extent, loops, ranges
        )
        for it in iters
    }
    return {var: part for var, part in hulls.items() if part is not None}


def under_loops(
    block: Block, wanted: Mapping[Var, Range], ranges: Ranges, where: Sequence[Expr] = ()
) -> Rebuilt:
    """`block` in new loops, one per iterator, over the wanted part of its domain.

    `ranges` is what is known where the loops will be. Instances outside the domain do not run, nor
    do those for which `where`, a condition on the iterators, is false; iterators with a single
    value get no loop.
    """
    loops: list[For] = []
    bindings: list[Expr] = []
    for it in block.iters:
        part = wanted.get(it.var) or Range(const(0, it.var.dtype), it.extent)
        if isinstance(part.extent, Const) and part.extent.value == 1:
            bindings.append(simplify(part.start, ranges))
            continue
        loop = For(loop_var(it), part.extent, "serial", block, span=block.span)
        ranges = ranges.with_extent(loop.var, loop.extent)
        loops.append(loop)
        bindings.append(simplify(part.start + loop.var, ranges))
    values = dict(zip((it.var for it in block.iters), bindings, strict=True))
    conditions = [*(substitute(c, values) for c in where), *_domain(block, bindings)]
    moved = replace(block, bindings=tuple(bindings), predicate=needed(conditions, ranges))
    return Rebuilt(nest(loops, moved), tuple(loops))


def loop_var(it: Iter) -> Var:
    """The loop of an iterator `vi` is called `i`."""
    return Var(it.var.name.removeprefix("v") or it.var.name, it.var.dtype)


def _domain(block: Block, bindings: Sequence[Expr]) -> list[Expr]:
    """The conditions for an instance to be within the domains of all iterators."""
    pairs = zip(block.iters, bindings, strict=True)
    return [c for it, value in pairs for c in (value >= 0, value < it.extent)]
