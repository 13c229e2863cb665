"""Which elements the blocks below a loop access, and to which iteration an element belongs.

A term c * v of an index, where v is a loop variable, can be recovered from the index if the smaller
terms stay below c and the larger ones are multiples of c times the range of v: then v is (index -
offset) // c % range. So can v // a and v % b, the digits of v. Where all accesses determine the
digits of v by the same rule, iterations of v access different elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilewright.arith import (
    Linear,
    Ranges,
    bounds,
    knowing_nothing,
    linear,
    linear_bounds,
    prove,
    simplify,
)
from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Range,
    Stmt,
    Var,
    const,
    free_vars,
    is_const,
    substitute,
    walk,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree


class RegionAccess(NamedTuple):
    """A box of a buffer that a block accesses, in terms of the loops around the block."""

    block: Block
    buffer: Buffer
    ranges: tuple[Range, ...]
    is_write: bool


class Digit(NamedTuple):
    """How part of a value v is recovered from an index: v // low % (high // low), or v // low.

    The index is that of a dimension, or a value that other digits determine.
    """

    source: int | frozenset[Digit]
    scale: int
    modulus: int | None
    offset: Expr
    low: Expr
    high: Expr | None


def accesses_in(tree: Tree, stmt: Stmt) -> list[RegionAccess]:
    """The accesses of the blocks at or below `stmt`, in program order; reads of a block first."""
    return [access for block in tree.blocks_in(stmt) for access in accesses_of(block)]


def accesses_of(block: Block) -> list[RegionAccess]:
    """The accesses of a block, in terms of the loops around it."""
    known = block if block.writes else with_inferred_regions(block)
    values = {it.var: value for it, value in zip(block.iters, block.bindings, strict=True)}

    def outside(ranges: Sequence[Range]) -> tuple[Range, ...]:
        return tuple(Range(substitute(s, values), substitute(e, values)) for s, e in ranges)

    reads = [RegionAccess(block, r.buffer, outside(r.ranges), False) for r in known.reads]
    return reads + [RegionAccess(block, r.buffer, outside(r.ranges), True) for r in known.writes]


def inner_vars(loop: For) -> set[Var]:
    """The variables of the loops below `loop`."""
    return {s.var for s in walk(loop.body) if isinstance(s, For)}


def determined_digits(
    ranges: Sequence[Range], var: Var, free: Iterable[Var], context: Ranges
) -> frozenset[Digit]:
    """The digits of `var` that the indices of a box determine, whatever the values of `free`."""
    running = frozenset(free) | {var}
    pending: list[tuple[int | frozenset[Digit], Range]] = list(enumerate(ranges))
    known: dict[Expr, set[Digit]] = {}
    seen: set[Expr] = {var}
    while pending:
        source, part = pending.pop()
        for value, digit in _digits(source, part, running, context):
            known.setdefault(value, set()).add(digit)
        # A complete value, such as a fused loop's index, may in turn determine others.
        for value in [v for v in known if v not in seen and are_complete(known[v])]:
            seen.add(value)
            pending.append((frozenset(known[value]), Range(value, const(1))))
    return frozenset(known.get(var, ()))


def are_complete(digits: Iterable[Digit]) -> bool:
    """Whether these digits together determine the whole variable."""
    nexts: dict[Expr, list[Expr | None]] = {}
    for digit in digits:
        nexts.setdefault(digit.low, []).append(digit.high)
    pending: list[Expr] = [const(1)]
    seen: set[Expr] = set()
    while pending:
        low = pending.pop()
        for high in nexts.get(low, []):
            if high is None:
                return True
            if high not in seen:
                seen.add(high)
                pending.append(high)
    return False


def writes_differ_along(block: Block, var: Var) -> bool:
    """Whether instances that differ in an iterator always write different elements."""
    ranges = knowing_nothing()
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    own = {it.var for it in block.iters}
    return all(
        are_complete(determined_digits(region.ranges, var, own, ranges)) for region in block.writes
    )


def writes_are_distinct(block: Block) -> bool:
    """Whether different instances write different elements, except within one reduction."""
    varying = [it.var for it in block.iters if it.kind == "spatial" and not is_const(it.extent, 1)]
    return all(writes_differ_along(block, var) for var in varying)


def _digits(
    source: int | frozenset[Digit], part: Range, running: frozenset[Var], context: Ranges
) -> Iterable[tuple[Expr, Digit]]:
    """The digits that an index determines, each with the value that it is a digit of."""
    total = linear(simplify(part.start, context))
    moving, offset = total.split(lambda atom, _: bool(free_vars(atom) & running))
    for atom, scale in moving.terms.items():
        value, low, high = _digit_of(atom)
        if scale > 0 and (rule := _reading(moving, atom, scale, part.extent, context)):
            yield value, Digit(source, *rule, offset.expr(), low, high)


def _reading(
    total: Linear, atom: Expr, scale: int, width: Expr, context: Ranges
) -> tuple[int, int | None] | None:
    """The scale and modulus by which the atom is recovered from the sum, if it can be.

    Smaller terms must stay below the scale; larger ones must be multiples of more than the rest.
    """
    small, large = total.without(atom).split(lambda _, c: abs(c) < scale)
    if not _stays_below(small, width, scale, context):
        return None
    if not large.terms:
        return scale, None
    most, least = bounds(atom, context).high, bounds(atom, context).low
    step = math.gcd(*large.terms.values())
    if most is None or least is None or least < 0 or step < scale * (most + 1):
        return None
    # Accesses that agree with the range of the atom then recover it by the same rule.
    return (scale, None) if step % (scale * (most + 1)) == 0 else (scale, step)


def _stays_below(small: Linear, width: Expr, scale: int, context: Ranges) -> bool:
    """Whether a range of `width` from a sum on is non-negative and stays below the scale."""
    near = linear_bounds(small, context)
    if isinstance(width, Const) and near.lies_in(0, scale - int(width.value)):
        return True
    lowest = bounds(small.expr(), context).low
    is_natural = lowest is not None and lowest >= 0
    return is_natural and _is_below(small.expr() + (width - 1), scale, context)


def _is_below(value: Expr, scale: int, context: Ranges) -> bool:
    below = bounds(simplify(value, context), context).high
    # A predicate on several variables together bounds none of them by itself.
    return (below is not None and below < scale) or prove(value < scale, context)


def _digit_of(atom: Expr) -> tuple[Expr, Expr, Expr | None]:
    """`atom` as a digit: v, v // a, v % b or v // a % b; gives v, and the digit's bounds in it."""
    if not isinstance(atom, Binary) or atom.op not in ("floordiv", "floormod"):
        return atom, const(1), None
    if atom.op == "floordiv":
        return atom.a, atom.b, None
    quotient = atom.a
    if isinstance(quotient, Binary) and quotient.op == "floordiv":
        return quotient.a, quotient.b, _times(quotient.b, atom.b)
    return quotient, const(1), atom.b


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) * int(b.value))
    return simplify(a * b)
