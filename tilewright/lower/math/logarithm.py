"""log, log2, log10 and log1p.

x = 2**k (1 + f) with 1 + f between √½ and √2, found by adding to the bits. log(1 + f) is f plus a
tail: a polynomial in f (float32), or in s = f / (2 + f), which needs a division but far fewer terms
(float64).
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Expr, select
from tilewright.lower.math.builder import MathBuilder
from tilewright.lower.math.coefficients import LN2, LOG, LOG2_E, LOG10_2, LOG10_E, LOG_ODD

SQRT_HALF = 0.7071067811865476


class Decomposed(NamedTuple):
    """x = 2**exponent * (1 + fraction); `field` is the biased exponent where it is in the bits."""

    exponent: Expr
    fraction: Expr
    field: Expr


def log(b: MathBuilder, x: Expr) -> Expr:
    exponent, fraction, _ = decompose(b, x)
    return _with_specials(b, x, _log_of_parts(b, exponent, fraction))


def log2(b: MathBuilder, x: Expr) -> Expr:
    exponent, fraction, _ = decompose(b, x)
    high, low = b.of_type(LOG2_E)
    small = fraction + _tail(b, fraction)
    return _with_specials(b, x, b.fma(small, high, b.fma(small, low, exponent)))


def log10(b: MathBuilder, x: Expr) -> Expr:
    exponent, fraction, _ = decompose(b, x)
    (high, low), (two_high, two_low) = b.of_type(LOG10_E), b.of_type(LOG10_2)
    small = fraction + _tail(b, fraction)
    remainder = b.fma(exponent, two_low, small * low)
    return _with_specials(b, x, b.fma(exponent, two_high, b.fma(small, high, remainder)))


def log1p(b: MathBuilder, x: Expr) -> Expr:
    special = log1p_of_ordinary(b, x)
    special = select(x < b.infinity, special, x)
    special = select(x > -1.0, special, select(x == -1.0, -b.infinity, b.nan))
    # Keeps the sign of zero and every bit of subnormals.
    return select(b.abs(x) < b.epsilon, b.flushed(x), special)


def log1p_of_ordinary(b: MathBuilder, x: Expr) -> Expr:
    """log1p for -1 < x < infinity.

    Only the exponent of 1 + x is used; the fraction comes from x itself, rounded once: (1 + x) /
    2**k - 1 = x / 2**k + (1 / 2**k - 1).
    """
    exponent, _, field = _decompose_normal(b, x + 1.0, b.bias)
    # Four times 1 / 2**k, because 1 / 2**128 would be subnormal.
    scale = b.from_bits(b.whole((2 * b.bias + 2) << b.mantissa) - field)
    fraction = b.fma(x, scale, scale - 4.0) * 0.25
    return _log_of_parts(b, exponent, fraction)


def decompose(b: MathBuilder, x: Expr) -> Decomposed:
    """For a positive finite number; subnormals are scaled up first."""
    lift = b.mantissa + 2
    small = x < b.min_normal
    lifted = select(small, x * 2.0**lift, x)
    exponent, fraction, field = _decompose_normal(b, lifted, 0)
    bias = select(small, b.number(float(b.bias + lift)), b.number(float(b.bias)))
    return Decomposed(exponent - bias, fraction, field)


def _decompose_normal(b: MathBuilder, x: Expr, bias: int) -> Decomposed:
    half = b.float_bits(SQRT_HALF)
    moved = b.bits(x) + b.whole(b.float_bits(1.0) - half)
    # Above 2**mantissa the low bits count units: this converts an integer without a conversion.
    counter = 2.0**b.mantissa
    counted = b.from_bits((moved >> b.mantissa) | b.whole(b.float_bits(counter)))
    mask = (1 << b.mantissa) - 1
    significand = b.from_bits((moved & b.whole(mask)) + b.whole(half))
    field = moved & b.whole(((1 << b.width) - 1) ^ mask)
    return Decomposed(counted - (counter + bias), significand - 1.0, field)


def _log_of_parts(b: MathBuilder, exponent: Expr, fraction: Expr) -> Expr:
    high, low = b.of_type(LN2)
    small = fraction + b.fma(exponent, low, _tail(b, fraction))
    return b.fma(exponent, high, small)


def _tail(b: MathBuilder, f: Expr) -> Expr:
    """log(1 + f) - f."""
    if not b.is_double:
        return b.polynomial(b.of_type(LOG), f) * (f * f)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    # 2 s = f - s f and s f = f²/2 - s f²/2: only small terms are rounded.
    return b.fma(s, b.fma(z, b.polynomial(b.of_type(LOG_ODD), z), half_square), -half_square)


def _with_specials(b: MathBuilder, x: Expr, ordinary: Expr) -> Expr:
    bounded = select(x < b.infinity, ordinary, x)
    return select(x > 0.0, bounded, select(x == 0.0, -b.infinity, b.nan))
