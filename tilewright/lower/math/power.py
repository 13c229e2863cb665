"""pow and rsqrt.

|x|**y = 2**(y log2 |x|). The exponent may be large, and its absolute error is the result's relative
one, so the logarithm and the product are carried as unevaluated sums of two numbers.
"""

from __future__ import annotations

from tilewright.ir import Expr, call, maximum, minimum, select
from tilewright.lower.math.builder import MathBuilder, Pair
from tilewright.lower.math.coefficients import LOG2_C0, LOG2_C1, LOG2_ODD
from tilewright.lower.math.exponential import exp2_of_sum
from tilewright.lower.math.logarithm import decompose


def rsqrt(b: MathBuilder, x: Expr) -> Expr:
    return b.number(1.0) / call("sqrt", x)


def pow(b: MathBuilder, x: Expr, y: Expr) -> Expr:
    """With the special cases of C99."""
    size = b.abs(x)
    whole = call("trunc", y) == y
    half = y * 0.5
    odd = whole & (call("trunc", half) != half)
    result = _exp2(b, _product(b, _log2(b, size), y))
    # The base is 0 or infinity, and its logarithm not finite.
    grows = (size > 1.0) == (y > 0.0)
    extreme = select(grows, b.infinity, b.number(0.0))
    result = select((size == 0.0) | (size == b.infinity), extreme, result)
    result = select((x < 0.0) & (size < b.infinity) & ~whole, b.nan, result)
    result = select(odd, b.with_sign(result, x), result)
    result = select((x != x) | (y != y), b.nan, result)
    return select((y == 0.0) | (x == 1.0), b.number(1.0), result)


def _product(b: MathBuilder, a: Pair, y: Expr) -> Pair:
    """a * y, where y is clamped to a range that still decides between 0, 1 and infinity."""
    limit = b.pick(2.0**40, 2.0**80)
    y = minimum(maximum(y, -limit), limit)
    product = b.two_product(a.high, y)
    return Pair(product.high, b.fma(a.low, y, product.low))


def _exp2(b: MathBuilder, exponent: Pair) -> Expr:
    # No effect where it matters: next to a clamped high part, the low part is meaningless.
    low = minimum(maximum(exponent.low, -0.25), 0.25)
    return exp2_of_sum(b, exponent.high, low)


def _log2(b: MathBuilder, x: Expr) -> Pair:
    """log2 of a positive finite number, to about one and a half times the precision of the type.

    log2(1 + f) = s (C0 + z (C1 + z P(z))) with s = f / (2 + f), z = s²; all but P are pairs.
    """
    exponent, fraction, _ = decompose(b, x)
    s = _quotient(b, fraction, b.ordered_sum(b.number(2.0), fraction))
    z = _times(b, s, s)
    (c0, c0_low), (c1, c1_low) = b.of_type(LOG2_C0), b.of_type(LOG2_C1)
    inner = b.ordered_sum(b.number(c1), z.high * b.polynomial(b.of_type(LOG2_ODD), z.high))
    inner = _times(b, z, Pair(inner.high, inner.low + c1_low))
    outer = b.ordered_sum(b.number(c0), inner.high)
    small = _times(b, s, Pair(outer.high, outer.low + (inner.low + c0_low)))
    total = b.ordered_sum(exponent, small.high)
    return b.ordered_sum(total.high, total.low + small.low)


def _quotient(b: MathBuilder, a: Expr, divisor: Pair) -> Pair:
    inverse = b.number(1.0) / divisor.high
    high = a * inverse
    back = b.two_product(high, divisor.high)
    remainder = ((a - back.high) - back.low) - high * divisor.low
    return Pair(high, remainder * inverse)


def _times(b: MathBuilder, a: Pair, c: Pair) -> Pair:
    product = b.two_product(a.high, c.high)
    return Pair(product.high, product.low + b.fma(a.high, c.low, a.low * c.high))
