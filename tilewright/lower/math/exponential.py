"""exp, exp2, expm1 and sigmoid.

With x = n ln 2 + r and |r| <= ln(2) / 2, e**x = 2**n e**r; e**r is a polynomial, 2**n is made of
bits. Arguments are clamped just beyond the range where the result is finite and not zero.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Expr, maximum, minimum, select
from tilewright.lower.math.builder import Builder
from tilewright.lower.math.coefficients import EXP, EXP2, EXPM1, LN2


class Reduced(NamedTuple):
    """x = n ln 2 + rest; `shifted` is n + magic."""

    rest: Expr
    shifted: Expr


def exp(b: Builder, x: Expr) -> Expr:
    low, high = b.pick(-104.0, -746.0), b.pick(89.0, 710.0)
    return _exp_between(b, minimum(maximum(x, low), high))


def exp_of_negative(b: Builder, x: Expr) -> Expr:
    """exp for x <= 0."""
    return _exp_between(b, maximum(x, b.pick(-104.0, -746.0)))


def exp_of_moderate(b: Builder, x: Expr) -> Expr:
    """exp where the result is known to be a normal number."""
    rest, shifted = reduced(b, x)
    return _exp_of_rest(b, rest) * b.power_of_two(shifted)


def half_exp(b: Builder, x: Expr) -> Expr:
    """exp(x) / 2 for x >= 0, finite a little longer than exp itself."""
    rest, shifted = reduced(b, minimum(x, b.pick(90.0, 711.0)))
    return _exp_of_rest(b, rest) * b.power_of_two(shifted, -2) * 2.0


def exp2(b: Builder, x: Expr) -> Expr:
    clamped = minimum(maximum(x, b.pick(-151.0, -1076.0)), b.pick(129.0, 1025.0))
    shifted = clamped + b.magic
    rest = clamped - b.nearest(shifted)
    return b.scaled(exp2_of_rest(b, rest), shifted)


def exp2_of_rest(b: Builder, rest: Expr) -> Expr:
    return b.fma(b.polynomial(b.of_type(EXP2), rest), rest, 1.0)


def expm1(b: Builder, x: Expr) -> Expr:
    low, high = b.pick(-20.0, -40.0), b.pick(89.0, 710.0)
    result = half_expm1(b, minimum(maximum(x, low), high)) * 2.0
    # Keeps the sign of zero and the last bit of subnormals.
    return select(b.abs(x) < b.epsilon, x, result)


def half_expm1(b: Builder, x: Expr) -> Expr:
    """expm1(x) / 2 for an argument within its clamps: 2**n (e**r - 1) + (2**n - 1), halved."""
    rest, shifted = reduced(b, x)
    small = b.fma(b.polynomial(b.of_type(EXPM1), rest), rest * rest, rest)
    scale = b.power_of_two(shifted, -1)
    return b.fma(small, scale, scale - 0.5)


def sigmoid(b: Builder, x: Expr) -> Expr:
    """1 / (1 + e**-x), as e**x / (e**x + 1) for negative x, so that neither overflows."""
    e = exp_of_negative(b, -b.abs(x))
    return select(x < 0.0, e, b.number(1.0)) / (e + 1.0)


def reduced(b: Builder, x: Expr) -> Reduced:
    high, low = b.of_type(LN2)
    shifted = b.fma(x, 1.4426950408889634, b.magic)
    n = b.nearest(shifted)
    # n has few bits and so has `high`: their product is exact without a fused operation, too.
    return Reduced(b.fma(n, -low, b.fma(n, -high, x)), shifted)


def _exp_between(b: Builder, x: Expr) -> Expr:
    rest, shifted = reduced(b, x)
    return b.scaled(_exp_of_rest(b, rest), shifted)


def _exp_of_rest(b: Builder, rest: Expr) -> Expr:
    return b.fma(b.polynomial(b.of_type(EXP), rest), rest, 1.0)
