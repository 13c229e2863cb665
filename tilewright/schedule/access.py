"""Which elements the blocks below a loop touch, and which iteration the elements tell.

A term c * v of an index, where v is a loop variable, can be read off the index again if the smaller
terms stay under c and the larger ones are multiples of c times the range of v: then v is
(index - offset) // c % range. So can v // a and v % b, the digits of v. Accesses that all tell the
digits of v by the same rule touch different elements in different iterations of v.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilewright.arith import Linear, Ranges, bounds, linear, simplify
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


class Access(NamedTuple):
    """A box of a buffer that a block touches, in terms of the loops around the block."""

    block: Block
    buffer: Buffer
    ranges: tuple[Range, ...]
    is_write: bool


class Digit(NamedTuple):
    """How part of a variable is read off an index: v // low % (high // low), or v // low."""

    dimension: int
    scale: int
    offset: Expr
    low: Expr
    high: Expr | None


def accesses_in(tree: Tree, stmt: Stmt) -> list[Access]:
    """What the blocks at or below `stmt` touch, in program order; reads of a block come first."""
    return [access for block in tree.blocks_in(stmt) for access in accesses_of(block)]


def accesses_of(block: Block) -> list[Access]:
    """What a block touches, in terms of the loops around it."""
    known = block if block.writes else with_inferred_regions(block)
    values = {it.var: value for it, value in zip(block.iters, block.bindings, strict=True)}

    def outside(ranges: Sequence[Range]) -> tuple[Range, ...]:
        return tuple(Range(substitute(s, values), substitute(e, values)) for s, e in ranges)

    reads = [Access(block, r.buffer, outside(r.ranges), False) for r in known.reads]
    return reads + [Access(block, r.buffer, outside(r.ranges), True) for r in known.writes]


def inner_vars(loop: For) -> set[Var]:
    """The variables of the loops below `loop`."""
    return {s.var for s in walk(loop.body) if isinstance(s, For)}


def tells(
    ranges: Sequence[Range], var: Var, free: Iterable[Var], context: Ranges
) -> frozenset[Digit]:
    """The digits of `var` that a box tells while the variables in `free` take any value."""
    found: set[Digit] = set()
    for dimension, part in enumerate(ranges):
        found.update(_digits(dimension, part, var, frozenset(free) - {var}, context))
    return frozenset(found)


def determine(digits: Iterable[Digit]) -> bool:
    """Whether these digits together are the whole variable."""
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


def _digits(
    dimension: int, part: Range, var: Var, free: frozenset[Var], context: Ranges
) -> Iterable[Digit]:
    total = linear(simplify(part.start, context))
    running, offset = total.split(lambda atom, _: bool(free_vars(atom) & (free | {var})))
    for atom, scale in running.terms.items():
        if free_vars(atom).isdisjoint(free) and scale > 0:
            place = _place(atom, var, context)
            if place and _stands_out(running, atom, scale, part.extent, context):
                yield Digit(dimension, scale, offset.expr(), *place)


def _stands_out(total: Linear, atom: Expr, scale: int, width: Expr, context: Ranges) -> bool:
    """Whether scale * atom can be read off the sum: smaller terms stay below, larger ones above."""
    rest = total.without(atom)
    small, large = rest.split(lambda _, c: abs(c) < scale)
    below = bounds(simplify(small.expr() + (width - 1), context), context)
    lowest = bounds(small.expr(), context).low
    if lowest is None or lowest < 0 or below.high is None or below.high >= scale:
        return False
    if not large.terms:
        return True
    most = bounds(atom, context).high
    return most is not None and all(c % (scale * (most + 1)) == 0 for c in large.terms.values())


def _place(atom: Expr, var: Var, context: Ranges) -> tuple[Expr, Expr | None] | None:
    """The digit of `var` that `atom` is: v, v // a, v % b or v // a % b."""
    if atom is var:
        return const(1), None
    if not isinstance(atom, Binary) or atom.op not in ("floordiv", "floormod"):
        return None
    if not free_vars(atom.b).isdisjoint({var}):
        return None
    if atom.op == "floordiv":
        return (atom.b, None) if atom.a is var else None
    inner = _place(atom.a, var, context)
    if inner is None or inner[1] is not None:
        return None
    return inner[0], _times(inner[0], atom.b)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) * int(b.value))
    return b if is_const(a, 1) else simplify(a * b)
