"""Loops that were fused and split again: whether a block's variables determine their iterations.

A fused loop that is split binds the variables of a block to the digits of one number:

    for b: for t in 256: block C(vi = (b * 256 + t) // 24, vj = (b * 32 + t // 8) % 3, vk = t % 8)

Simplified digits no longer contain that number. It is guessed (b * 256 + t), and the guess
verified: its simplified digits must be the block's bindings, up to parts that do not vary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from tilewright.arith import Linear, Ranges, bounds, linear, prove, simplify
from tilewright.ir import (
    Binary,
    Block,
    Expr,
    Iter,
    Range,
    Var,
    const,
    free_vars,
    is_const,
    walk_expr,
)
from tilewright.schedule.facts.access import are_complete, determined_digits

_Pairs = Sequence[tuple[Iter, Expr]]
#: A part of a binding, and the number of its values.
_Digit = tuple[Expr, Expr]


def bindings_determine(block: Block, var: Var, free: set[Var], ranges: Ranges) -> bool:
    """Whether instances of a block in different iterations of the loop of `var` differ in a spatial
    variable, whatever the values of the variables `free`."""
    pairs = list(zip(block.iters, block.bindings, strict=True))
    spatial = [(it, value) for it, value in pairs if it.kind == "spatial"]
    values = [Range(value, const(1)) for _, value in spatial]
    if are_complete(determined_digits(values, var, free, ranges)):
        return True
    for number in dict.fromkeys(_candidates(spatial)):
        own = free_vars(number)
        moving = _moving_parts(spatial, own, {var, *free}, ranges) if var in own else None
        if moving is None or not _are_digits(moving, number, ranges):
            continue
        if are_complete(determined_digits([Range(number, const(1))], var, free, ranges)):
            return True
    return False


def _candidates(pairs: _Pairs) -> Iterator[Expr]:
    """Candidates for the number whose digits the bindings are: their dividends, undivided."""
    parts = [part for _, value in pairs for part in walk_expr(value)]
    divided = [p.a for p in parts if isinstance(p, Binary) and p.op in ("floordiv", "floormod")]
    yield from (_whole(linear(a)) for a in divided)


def _whole(total: Linear) -> Expr:
    """b * 32 + t // 8  -->  b * 256 + t"""
    for atom, scale in total.terms.items():
        if scale == 1 and isinstance(atom, Binary) and atom.op == "floordiv":
            rest = total.without(atom).expr()
            return _whole(linear(rest * atom.b + atom.a))
    return total.expr()


def _moving_parts(
    pairs: _Pairs, own: frozenset[Var], running: set[Var], ranges: Ranges
) -> list[_Digit] | None:
    """The parts of bindings that depend on the variables of a number; None where such a part cannot
    be separated: the rest must not vary, or be less than the part's steps (t % 2 * 4 + v, v <
    4)."""
    found: list[_Digit] = []
    for it, value in pairs:
        total = linear(simplify(value, ranges))
        moving, rest = total.split(lambda atom, _: bool(free_vars(atom) & own))
        if is_const(it.extent, 1) or not moving.terms:
            continue
        part, extent, below = moving.expr(), it.extent, rest.expr()
        if not free_vars(below).isdisjoint(running):
            step = gcd(*moving.terms.values())
            if not (prove(below >= 0, ranges) and prove(below < step, ranges)):
                return None
            part, extent = moving.divided(step).expr(), simplify(-(-extent // step), ranges)
        found.append((part, extent))
    return found


def _are_digits(left: list[_Digit], number: Expr, ranges: Ranges) -> bool:
    """Whether these values are the digits of a number, in any order."""
    below, is_whole = const(1), False
    while left and not is_whole:
        rest = simplify(number // below, ranges)
        for part, extent in left:
            is_whole = rest is part
            base = const(1) if is_whole else _base(part, extent, rest, ranges)
            if base is not None:
                below = simplify(below * base, ranges)
                left.remove((part, extent))
                break
        else:
            return False
    return not left and (is_whole or prove(number < below, ranges))


def _base(part: Expr, extent: Expr, rest: Expr, ranges: Ranges) -> Expr | None:
    """The base for which `part` is the lowest digit of `rest`."""
    most = bounds(part, ranges).high
    bases = (extent,) if most is None else (const(most + 1), extent)
    return next((base for base in bases if simplify(rest % base, ranges) is part), None)
