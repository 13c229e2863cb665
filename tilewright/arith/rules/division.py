"""Quotients and remainders of integers.

The dividend is treated as a sum; multiples of the divisor are split off, and the rest vanishes if
its bounds are within one period. Everywhere c > 0 is a constant, d > 0 a symbolic divisor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.arith.bounds import bounds, is_exact, linear_bounds
from tilewright.arith.divisibility import divisor
from tilewright.arith.interval import Interval, is_index
from tilewright.arith.linear import (
    Linear,
    constant_of,
    degree,
    factors,
    number,
    product,
    without_factors,
)
from tilewright.arith.linearize import linear
from tilewright.arith.nonnegative import CHEAP, is_nonnegative
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Expr

Rule = Callable[[Any, Ranges], Expr | None]


# ---- by a constant ------------------------------------------------------------------------------


def _quotient_by_constant(e: Binary, ranges: Ranges) -> Expr | None:
    c, total = number(e.b), linear(e.a)
    if c is None or c <= 1 or e.dtype.is_vector:
        return None
    if not is_exact(total, ranges):
        period = _period(bounds(e.a, ranges), c)
        return None if period is None else constant_of(period, e.dtype)
    for rule in (_split_quotient, _coarser_quotient, _nested_quotient):
        result = rule(total, c, ranges)
        if result is not None:
            return result
    return None


def _split_quotient(total: Linear, c: int, ranges: Ranges) -> Expr | None:
    """(c*q + r) // c = q + r // c"""
    whole, rest = total.split(lambda _, k: k % c == 0)
    period = _period(linear_bounds(rest, ranges), c)
    if period is not None:
        return whole.divided(c).shifted(period).expr()
    shift = rest.constant // c
    rest = rest.shifted(-shift * c)
    if (whole.is_constant and shift == 0) or not is_exact(rest, ranges):
        return None
    remaining = Linear.of_atom(_floordiv(rest.expr(), c))
    return whole.divided(c).shifted(shift).plus(remaining).expr()


def _coarser_quotient(total: Linear, c: int, ranges: Ranges) -> Expr | None:
    """(g*p + r) // (g*c) = p // c for 0 <= r < g"""
    for g, multiple, rest in _by_steps(total, c):
        if linear_bounds(rest, ranges).lies_in(0, g - 1):
            outer = multiple.divided(g)
            return _floordiv(outer.expr(), c // g) if is_exact(outer, ranges) else None
    return None


def _nested_quotient(total: Linear, c: int, _r: Ranges) -> Expr | None:
    """(x // b + k) // c = (x + k*b) // (b*c), and (x % (c*m)) // c = (x // c) % m"""
    if len(total.terms) != 1 or not is_index(total.dtype):
        return None
    ((atom, coefficient),) = total.terms.items()
    by = number(atom.b) if isinstance(atom, Binary) else None
    if not isinstance(atom, Binary) or coefficient != 1 or by is None or by <= 0:
        return None
    if atom.op == "floordiv":
        return _floordiv(linear(atom.a).shifted(total.constant * by).expr(), by * c)
    if atom.op == "floormod" and by % c == 0 and total.constant == 0:
        return _floormod(_floordiv(atom.a, c), by // c)
    return None


def _remainder_by_constant(e: Binary, ranges: Ranges) -> Expr | None:
    c, total = number(e.b), linear(e.a)
    if c is None or c <= 1 or e.dtype.is_vector:
        return None
    if not is_exact(total, ranges):
        period = _period(bounds(e.a, ranges), c)
        return None if period is None else total.shifted(-period * c).expr()
    for rule in (_split_remainder, _coarser_remainder, _quotient_as_remainder):
        result = rule(total, c, ranges)
        if result is not None:
            return result
    return None


def _split_remainder(total: Linear, c: int, ranges: Ranges) -> Expr | None:
    """(c*q + r) % c = r % c"""
    rest = total.split(lambda a, k: k * divisor(a, ranges) % c == 0)[1]
    period = _period(linear_bounds(rest, ranges), c)
    if period is not None:
        return rest.shifted(-period * c).expr()
    rest = _reduced(rest, c)
    changed = rest.constant != total.constant or rest.terms != total.terms
    return _floormod(rest.expr(), c) if changed and is_exact(rest, ranges) else None


def _reduced(total: Linear, c: int) -> Linear:
    """The constant modulo c, and x % (c*m) taken as x; coefficients, strides of loops, stay."""
    result = Linear({}, total.constant % c, total.dtype)
    for atom, k in total.terms.items():
        inner = _dividend_of_multiple(atom, c) if is_index(total.dtype) else None
        part = Linear.of_atom(atom) if inner is None else linear(inner)
        result = result.plus(part, k)
    return result.shifted(result.constant % c - result.constant)


def _dividend_of_multiple(atom: Expr, c: int) -> Expr | None:
    """x of x % (c*m)"""
    if not isinstance(atom, Binary) or atom.op != "floormod":
        return None
    by = number(atom.b)
    return atom.a if by is not None and by > 0 and by % c == 0 else None


def _coarser_remainder(total: Linear, c: int, ranges: Ranges) -> Expr | None:
    """(g*p + r) % (g*c) = g * (p % c) + r for 0 <= r < g"""
    for g, multiple, rest in _by_steps(total, c):
        outer = multiple.divided(g)
        if linear_bounds(rest, ranges).lies_in(0, g - 1) and is_exact(outer, ranges):
            inner = Linear.of_atom(_floormod(outer.expr(), c // g))
            return inner.scaled(g).plus(rest).expr()
    return None


def _quotient_as_remainder(total: Linear, c: int, ranges: Ranges) -> Expr | None:
    """x // d % c = x // d for 0 <= x < c*d"""
    by_symbol = any(
        isinstance(a, Binary) and a.op == "floordiv" and number(a.b) is None for a in total.terms
    )
    period = Linear({}, c, total.dtype)
    return total.expr() if by_symbol and _is_remainder(total, period, ranges) else None


def _by_steps(total: Linear, c: int) -> Iterator[tuple[int, Linear, Linear]]:
    """Ways to write total = multiple of g + rest, for divisors g of c found in coefficients."""
    steps = {math.gcd(c, k) for k in total.terms.values()} - {1}
    for g in sorted(steps, reverse=True):
        multiple, rest = total.split(lambda _, k, g=g: k % g == 0)
        shift = rest.constant // g * g
        yield g, multiple.shifted(shift), rest.shifted(-shift)


def _period(limits: Interval, c: int) -> int | None:
    """The quotient by c, if it is constant over the limits."""
    if limits.low is None or limits.high is None or limits.low // c != limits.high // c:
        return None
    return limits.low // c


# ---- by a symbol --------------------------------------------------------------------------------


def _quotient_by_symbol(e: Binary, ranges: Ranges) -> Expr | None:
    """(d*q + r) // d = q + r // d, and r // d = 0 for 0 <= r < d"""
    parts = _divided_by_symbol(e, ranges)
    if parts is None:
        return None
    quotient, rest, vanishes = parts
    if vanishes:
        return quotient.expr()
    if quotient.is_constant and quotient.constant == 0:
        coarser = _coarser_by_symbol(rest, linear(e.b), ranges)
        return None if coarser is None else Binary("floordiv", *coarser[1:3])
    return quotient.plus(Linear.of_atom(Binary("floordiv", rest.expr(), e.b))).expr()


def _remainder_by_symbol(e: Binary, ranges: Ranges) -> Expr | None:
    """(d*q + r) % d = r % d, and r % d = r for 0 <= r < d"""
    parts = _divided_by_symbol(e, ranges)
    if parts is None:
        return None
    quotient, rest, vanishes = parts
    if vanishes:
        return rest.expr()
    if quotient.is_constant and quotient.constant == 0:
        coarser = _coarser_by_symbol(rest, linear(e.b), ranges)
        if coarser is None:
            return None
        g, outer, by, lowest = coarser
        return Linear.of_atom(Binary("floormod", outer, by)).scaled(g).plus(lowest).expr()
    return Binary("floormod", rest.expr(), e.b)


def _coarser_by_symbol(
    total: Linear, d: Linear, ranges: Ranges
) -> tuple[int, Expr, Expr, Linear] | None:
    """g, p, b and r of (g*p + r) // (g*b) = p // b for 0 <= r < g"""
    common = math.gcd(d.constant, *d.terms.values())
    for g, multiple, rest in _by_steps(total, common):
        if not linear_bounds(rest, ranges).lies_in(0, g - 1):
            continue
        outer = multiple.divided(g)
        return (g, outer.expr(), d.divided(g).expr(), rest) if is_exact(outer, ranges) else None
    return None


def _divided_by_symbol(e: Binary, ranges: Ranges) -> tuple[Linear, Linear, bool] | None:
    """Quotient, rest, and whether the rest is in 0 … d - 1."""
    if number(e.b) is not None or not is_index(e.dtype) or e.dtype.is_vector:
        return None
    total, d = linear(e.a), linear(e.b)
    if not is_nonnegative(d.shifted(-1), ranges, CHEAP):
        return None
    quotient = _multiples_in(total, d)
    rest = total.minus(quotient.times(d))
    for below in (rest, rest.plus(d)):
        if _is_remainder(below, d, ranges):
            return (quotient if below is rest else quotient.shifted(-1)), below, True
    # Dividing by a sum of terms may leave more terms than there were.
    is_shorter = len(rest.terms) < len(total.terms)
    return (quotient, rest, False) if is_shorter or quotient.is_constant else None


def _is_remainder(rest: Linear, d: Linear, ranges: Ranges) -> bool:
    """0 <= rest < d"""
    room = d.minus(rest).shifted(-1)
    return is_nonnegative(rest, ranges, CHEAP) and is_nonnegative(room, ranges, CHEAP)


def _multiples_in(total: Linear, d: Linear) -> Linear:
    """q such that the terms of `total` divisible by the leading term of `d` are those of q * d."""
    lead, size = max(d.ordered(), key=lambda term: degree(term[0]))
    quotient = Linear({}, 0, total.dtype)
    for atom, k in total.terms.items():
        left = without_factors(atom, factors(lead))
        if left is None or k % size:
            continue
        part = Linear({product(left): k // size}, 0, total.dtype) if left else None
        quotient = quotient.shifted(k // size) if part is None else quotient.plus(part)
    return quotient


# ---- corners ------------------------------------------------------------------------------------


def _floordiv(a: Expr, c: int) -> Expr:
    return a if c == 1 else Binary("floordiv", a, constant_of(c, a.dtype))


def _floormod(a: Expr, c: int) -> Expr:
    return constant_of(0, a.dtype) if c == 1 else Binary("floormod", a, constant_of(c, a.dtype))


def _by_zero(e: Binary, _r: Ranges) -> Expr | None:
    return constant_of(0, e.dtype) if number(e.b) == 0 or number(e.a) == 0 else None


def _by_one(e: Binary, _r: Ranges) -> Expr | None:
    if number(e.b) != 1:
        return None
    return e.a if e.op.endswith("div") else constant_of(0, e.dtype)


def _have_opposites(e: Binary, c: int, ranges: Ranges) -> bool:
    """Whether c is negative, and the type holds -x and -c: it does not for the least value."""
    if not is_index(e.dtype) or not e.dtype.min_value < c < 0:
        return False
    low = bounds(e.a, ranges).low
    return low is not None and low > e.dtype.min_value


def _quotient_by_negative(e: Binary, ranges: Ranges) -> Expr | None:
    """x // -c = -x // c"""
    c = number(e.b)
    if c is None or not _have_opposites(e, c, ranges):
        return None
    return Binary("floordiv", linear(e.a).scaled(-1).expr(), constant_of(-c, e.dtype))


def _remainder_by_negative(e: Binary, ranges: Ranges) -> Expr | None:
    """x % -c = -(-x % c)"""
    c = number(e.b)
    if c is None or not _have_opposites(e, c, ranges):
        return None
    inner = Binary("floormod", linear(e.a).scaled(-1).expr(), constant_of(-c, e.dtype))
    return Linear.of_atom(inner).scaled(-1).expr()


def _rounding_down(e: Binary, ranges: Ranges) -> Expr | None:
    """truncdiv and truncmod round like floordiv and floormod where nothing is negative"""
    for operand in e.operands:
        low = bounds(operand, ranges).low
        if low is None or low < 0:
            return None
    return Binary(e.op.replace("trunc", "floor"), e.a, e.b)


RULES: dict[object, tuple[Rule, ...]] = {
    "floordiv": (
        _by_zero,  # x // 0 = 0, 0 // x = 0
        _by_one,  # x // 1 = x
        _quotient_by_negative,
        _quotient_by_constant,
        _quotient_by_symbol,
    ),
    "floormod": (
        _by_zero,  # x % 0 = 0, 0 % x = 0
        _by_one,  # x % 1 = 0
        lambda e, _: constant_of(0, e.dtype) if e.a is e.b else None,  # x % x = 0
        _remainder_by_negative,
        _remainder_by_constant,
        _remainder_by_symbol,
    ),
    "truncdiv": (_by_zero, _by_one, _rounding_down),
    "truncmod": (_by_zero, _by_one, _rounding_down),
}
