"""exp, exp2, expm1, sigmoid, and coarse versions: exp for results rounded to 16 bits, sigmoid to 8.

With x = n ln 2 + r and |r| <= ln(2) / 2, e**x = 2**n e**r; e**r is a polynomial, 2**n is built from
bits. Arguments are clamped just beyond the range where the result is finite and not zero. Where
denormals are flushed, products that would be denormal are zero.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.ir import Binary, Broadcast, Const, Expr, maximum, minimum, select
from tilewright.lower.math.builder import MathBuilder
from tilewright.lower.math.coefficients import (
    COARSE_EXP2,
    EXP,
    EXP2,
    EXP_RATIO,
    EXPM1,
    LN2,
    ByType,
)

_LN2: Final = 0.6931471805599453
#: Beyond it, coarse sigmoids are constant.
_COARSE_END: Final = 87.0


class ReducedExponent(NamedTuple):
    """x = n ln 2 + rest; `shifted` is n + magic(offset)."""

    rest: Expr
    shifted: Expr


def exp(b: MathBuilder, x: Expr) -> Expr:
    if b.flush and _is_at_most(x, b.pick(70.0, 670.0)):
        return _flushed_exp_of_low(b, x)
    clamped = maximum(x, b.pick(-104.0, -746.0))
    if _is_at_most(x, b.pick(70.0, 670.0)):
        return _exp_of_low(b, clamped)
    rest, shifted = reduced(b, minimum(clamped, b.pick(89.0, 710.0)), 2 * b.bias)
    first, second = b.halves_of_power(shifted)
    return _times_exp(b, EXP, rest, first) * second


def coarse_exp(b: MathBuilder, x: Expr) -> Expr:
    return exp(b, x)


def _exp_of_low(b: MathBuilder, x: Expr) -> Expr:
    """exp without overflow: the power is scaled up, and in the end down, even to subnormals."""
    up = b.mantissa + 2
    rest, shifted = reduced(b, x, b.bias + up)
    return _times_exp(b, EXP, rest, b.power_of_two(shifted)) * 2.0**-up


def _flushed_exp_of_low(b: MathBuilder, x: Expr) -> Expr:
    """exp without overflow, and zero from e**(-bias ln 2) down: there the bits of 2**n are zero.

    The power is multiplied last: its product with a small `rest` would be denormal, and lost.
    """
    rest, shifted = reduced(b, maximum(x, -b.bias * _LN2), b.bias)
    return b.fma(b.polynomial(b.of_type(EXP), rest), rest, 1.0) * b.power_of_two(shifted)


def exp_of_moderate(b: MathBuilder, x: Expr) -> Expr:
    """exp where the result is known to be a normal number."""
    rest, shifted = reduced(b, x, b.bias)
    return _times_exp(b, EXP, rest, b.power_of_two(shifted))


def half_exp(b: MathBuilder, x: Expr) -> Expr:
    """exp(x) / 2 for x >= 0; finite slightly longer than exp itself."""
    rest, shifted = reduced(b, minimum(x, b.pick(90.0, 711.0)), b.bias - 2)
    # The power may be infinite.
    moderate = b.fma(b.polynomial(b.of_type(EXP), rest), rest, 1.0)
    return moderate * b.power_of_two(shifted) * 2.0


def exp2(b: MathBuilder, x: Expr) -> Expr:
    return exp2_of_sum(b, x, None)


def exp2_of_sum(b: MathBuilder, x: Expr, low: Expr | None) -> Expr:
    """2 ** (x + low), where |low| is at most a quarter."""
    clamped = minimum(maximum(x, b.pick(-151.0, -1076.0)), b.pick(129.0, 1025.0))
    magic = b.magic(2 * b.bias)
    shifted = clamped + magic
    rest = clamped - (shifted - magic)
    first, second = b.halves_of_power(shifted)
    return _times_exp(b, EXP2, rest if low is None else rest + low, first) * second


def expm1(b: MathBuilder, x: Expr) -> Expr:
    low, high = b.pick(-20.0, -40.0), b.pick(89.0, 710.0)
    result = half_expm1(b, minimum(maximum(x, low), high)) * 2.0
    # Keeps the sign of zero and the last bit of subnormals.
    return select(b.abs(x) < b.epsilon, b.flushed(x), result)


def half_expm1(b: MathBuilder, x: Expr) -> Expr:
    """expm1(x) / 2 for an argument within its clamps: 2**n (e**r - 1) + (2**n - 1), halved."""
    rest, shifted = reduced(b, x, b.bias - 1)
    small = b.fma(b.polynomial(b.of_type(EXPM1), rest), rest * rest, rest)
    scale = b.power_of_two(shifted)
    return b.fma(small, scale, scale - 0.5)


def sigmoid(b: MathBuilder, x: Expr) -> Expr:
    """1 / (1 + e**-x), with just the division that it needs anyway.

    Where x = n ln 2 + r, e**-r is the ratio of A - r and A + r, so that 1 / (1 + e**-x) = (A + r) /
    ((A + r) + 2**-n (A - r)).
    """
    # Everything is scaled down, so that the sum is neither tiny nor huge.
    down = int(b.pick(64, b.width))
    x = minimum(maximum(x, b.pick(-104.0, -746.0)), b.pick(20.0, 40.0))
    rest, shifted = reduced(b, x, b.bias - down, -1)
    square = rest * rest
    tail = b.polynomial(b.of_type(EXP_RATIO), square)
    above = b.fma(tail, square, rest + 2.0) * 2.0**-down
    below = b.fma(tail, square, 2.0 - rest)
    return b.moderate_quotient(above, b.fma(below, b.power_of_two(shifted), above))


def coarse_sigmoid(b: MathBuilder, x: Expr) -> Expr:
    """1 / (1 + 2**-t) for t = x / ln 2, within 2**-12: a one-step range reduction, a short
    polynomial and a coarse reciprocal are enough."""
    x = minimum(maximum(x, -_COARSE_END), _COARSE_END)
    magic = b.magic(b.bias)
    shifted = b.fma(x, -1 / _LN2, magic)
    rest = b.fma(x, -1 / _LN2, magic - shifted)
    power = b.polynomial(COARSE_EXP2, rest)
    return b.coarse_inverse(b.fma(power, b.power_of_two(shifted), 1.0))


def reduced(b: MathBuilder, x: Expr, offset: int, sign: int = 1) -> ReducedExponent:
    """`sign` is the sign of n in `shifted`."""
    high, low = b.of_type(LN2)
    magic = b.magic(offset)
    shifted = b.fma(x, sign * 1.4426950408889634, magic)
    n = shifted - magic
    # n has few bits and so has `high`: their product is exact even without a fused operation.
    return ReducedExponent(b.fma(n, -sign * low, b.fma(n, -sign * high, x)), shifted)


def _times_exp(b: MathBuilder, table: ByType, rest: Expr, power: Expr) -> Expr:
    """power (1 + r P(r)): the product with r is exact and computed early, and no 1 is needed."""
    return b.fma(b.polynomial(b.of_type(table), rest), rest * power, power)


def _is_at_most(x: Expr, bound: float) -> bool:
    """Whether `x` is the minimum of something and a constant up to `bound`."""
    if not isinstance(x, Binary) or x.op != "min":
        return False
    numbers = (e.a if isinstance(e, Broadcast) else e for e in (x.a, x.b))
    return any(isinstance(e, Const) and e.value <= bound for e in numbers)
