"""The least and greatest value of an expression over ranges of some of its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilewright.arith.bounds import bounds, exact_linear, is_positive
from tilewright.arith.interval import Interval
from tilewright.arith.linear import Linear, factors
from tilewright.arith.linearize import linear
from tilewright.arith.nonnegative import end_at, in_powers_of, slope_sign
from tilewright.arith.prove import prove_equal
from tilewright.arith.ranges import Ranges
from tilewright.arith.simplify import simplify
from tilewright.ir import Binary, Cast, Expr, Select, Var, const, free_vars

Extremes = tuple[Expr, Expr]

#: How deep quotients, minima … may nest, and how many steps the bounds of one sum may take.
_DEPTH = 16
_STEPS = 64


def symbolic_bounds(expr: Expr, ranges: Ranges, over: Iterable[Var]) -> tuple[Expr, Expr] | None:
    """The least and greatest value of an integer expression, free of the variables `over`.

    The true values are between the two; where each variable occurs once, they are attained. None
    where a variable has no range or the expression is not monotone in it.
    """
    memo, key = ranges.memo("symbolic_bounds"), (expr, frozenset(over))
    if key not in memo:
        found = _extremes(simplify(expr, ranges), ranges, key[1], _DEPTH)
        memo[key] = found and (simplify(found[0], ranges), simplify(found[1], ranges))
    return memo[key]


def _extremes(e: Expr, ranges: Ranges, over: frozenset[Var], depth: int) -> Extremes | None:
    if free_vars(e).isdisjoint(over):
        return e, e
    total = exact_linear(e, ranges)
    if depth == 0 or total is None or e.dtype.is_vector:
        return None
    ends = [_end(total, ranges, over, depth, low) for low in (True, False)]
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def _end(total: Linear, ranges: Ranges, over: frozenset[Var], depth: int, low: bool) -> Expr | None:
    """The least (or greatest) value of a sum, eliminating the variables one by one."""
    for _ in range(_STEPS):
        if all(free_vars(a).isdisjoint(over) for a in total.terms):
            return total.expr()
        closed = _close_atom(total, ranges, over, depth, low)
        after = _leave(total, ranges, over, low) if closed is None else closed
        if after is None:
            return None
        total = linear(simplify(after.expr(), ranges))
    return None


def _leave(total: Linear, ranges: Ranges, over: frozenset[Var], low: bool) -> Linear | None:
    """Replace the innermost variable by its bound."""
    present = {f for atom in total.terms for f in factors(atom)}
    var = next((v for v in ranges.innermost_first() if v in over and v in present), None)
    if var is None:
        return None
    without, slope = in_powers_of(total, var)
    sign = 0 if slope is None else slope_sign(slope, ranges)
    if slope is None or sign == 0:
        return None
    end = end_at(var, ranges, low=(sign > 0) == low)
    return None if end is None else without.plus(slope.times(end))


def _close_atom(
    total: Linear, ranges: Ranges, over: frozenset[Var], depth: int, low: bool
) -> Linear | None:
    """Replace the first quotient, minimum … with such variables by its extreme."""
    for atom, k in total.ordered():
        opaque = [f for f in factors(atom) if not isinstance(f, Var)]
        if all(free_vars(f).isdisjoint(over) for f in opaque):
            continue
        ends = _atom_extremes(atom, ranges, over, depth - 1)
        if ends is None:
            return None
        return total.without(atom).plus(linear(ends[0] if (k > 0) == low else ends[1]), k)
    return None


def _atom_extremes(atom: Expr, ranges: Ranges, over: frozenset[Var], depth: int) -> Extremes | None:
    rule = _ATOMS.get(atom.op if isinstance(atom, Binary) else type(atom))
    if depth <= 0 or rule is None:
        return None
    return rule(atom, lambda e: _extremes(e, ranges, over, depth), ranges)


_Inner = Callable[[Expr], "Extremes | None"]


def _of_both(atom: Binary, inner: _Inner, _r: Ranges) -> Extremes | None:
    """min and max are monotone in both operands."""
    a, b = inner(atom.a), inner(atom.b)
    if a is None or b is None:
        return None
    return Binary(atom.op, a[0], b[0]), Binary(atom.op, a[1], b[1])


def _of_select(atom: Select, inner: _Inner, _r: Ranges) -> Extremes | None:
    a, b = inner(atom.a), inner(atom.b)
    if a is None or b is None:
        return None
    return Binary("min", a[0], b[0]), Binary("max", a[1], b[1])


def _of_quotient(atom: Binary, inner: _Inner, ranges: Ranges) -> Extremes | None:
    x, d = inner(atom.a), inner(atom.b)
    if x is None or d is None or d[0] is not d[1] or not is_positive(d[0], ranges):
        return None
    return Binary("floordiv", x[0], atom.b), Binary("floordiv", x[1], atom.b)


def _of_remainder(atom: Binary, inner: _Inner, ranges: Ranges) -> Extremes | None:
    x, d = inner(atom.a), inner(atom.b)
    if d is None or d[0] is not d[1] or not is_positive(d[0], ranges):
        return None
    if x is not None and _same_period(x, atom.b, ranges):
        return Binary("floormod", x[0], atom.b), Binary("floormod", x[1], atom.b)
    return const(0, atom.dtype), linear(atom.b).shifted(-1).expr()


def _same_period(x: Extremes, d: Expr, ranges: Ranges) -> bool:
    return prove_equal(Binary("floordiv", x[0], d), Binary("floordiv", x[1], d), ranges)


def _of_product(atom: Binary, inner: _Inner, ranges: Ranges) -> Extremes | None:
    """A product is monotone in its factors where none is negative."""
    lows: Expr = const(1, atom.dtype)
    highs: Expr = const(1, atom.dtype)
    for factor in factors(atom):
        ends = inner(factor)
        low = None if ends is None else bounds(ends[0], ranges).low
        if ends is None or low is None or low < 0:
            return None
        lows, highs = Binary("mul", lows, ends[0]), Binary("mul", highs, ends[1])
    return lows, highs


def _of_cast(atom: Cast, inner: _Inner, ranges: Ranges) -> Extremes | None:
    """A conversion that keeps every value keeps their order."""
    source = atom.a.dtype
    if not source.is_integer or not bounds(atom.a, ranges).within(Interval.of_type(atom.dtype)):
        return None
    ends = inner(atom.a)
    return None if ends is None else (Cast(atom.dtype, ends[0]), Cast(atom.dtype, ends[1]))


_ATOMS: dict[object, Callable[[Any, _Inner, Ranges], Extremes | None]] = {
    "min": _of_both,
    "max": _of_both,
    "floordiv": _of_quotient,
    "floormod": _of_remainder,
    "mul": _of_product,
    Select: _of_select,
    Cast: _of_cast,
}
