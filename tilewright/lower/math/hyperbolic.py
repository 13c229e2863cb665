"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

from tilewright.ir import Expr, call, maximum, minimum, select
from tilewright.lower.math.builder import MathBuilder
from tilewright.lower.math.coefficients import LN2, SINH, TANH
from tilewright.lower.math.exponential import half_exp, half_expm1
from tilewright.lower.math.logarithm import log1p_of_ordinary

#: From here on tanh rounds to 1 in float32.
TANH_BOUND = 9.02


def sinh(b: MathBuilder, x: Expr) -> Expr:
    """A polynomial up to 1, above it from e**|x| / 2 and its reciprocal."""
    size = b.abs(x)
    half = half_exp(b, size)
    large = half - 0.25 / half
    square = x * x
    small = b.fma(size * square, b.polynomial(b.of_type(SINH), square), size)
    return b.with_sign(select(size < 1.0, small, large), x)


def cosh(b: MathBuilder, x: Expr) -> Expr:
    half = half_exp(b, b.abs(x))
    return half + 0.25 / half


def tanh(b: MathBuilder, x: Expr) -> Expr:
    """A ratio of polynomials, or h / (h + 1) with h = expm1(2 |x|) / 2."""
    if b.fused and not b.is_double:
        return b.line_and_ratio(TANH, 0.125, minimum(maximum(x, -TANH_BOUND), TANH_BOUND))
    half = half_expm1(b, minimum(b.abs(x), b.pick(10.0, 20.0)) * 2.0)
    return b.with_sign(half / (half + 1.0), x)


def asinh(b: MathBuilder, x: Expr) -> Expr:
    """log1p(|x| + x² / (1 + sqrt(1 + x²)))."""
    size = b.abs(x)
    square = size * size
    argument = size + square / (call("sqrt", square + 1.0) + 1.0)
    result = _log1p_or_log_of_double(b, size, argument)
    return select(size < b.epsilon, b.flushed(x), b.with_sign(result, x))


def acosh(b: MathBuilder, x: Expr) -> Expr:
    """log1p(t + sqrt(2 t + t²)) with t = x - 1."""
    t = x - 1.0
    argument = t + call("sqrt", t * (t + 2.0))
    return select(x >= 1.0, _log1p_or_log_of_double(b, x, argument), b.nan)


def atanh(b: MathBuilder, x: Expr) -> Expr:
    """log1p(2 |x| / (1 - |x|)) / 2."""
    size = b.abs(x)
    argument = (size + size) / (1.0 - size)
    result = select(argument < b.infinity, log1p_of_ordinary(b, argument) * 0.5, argument)
    result = select(size <= 1.0, b.with_sign(result, x), b.nan)
    return select(size < b.epsilon, b.flushed(x), result)


def _log1p_or_log_of_double(b: MathBuilder, x: Expr, argument: Expr) -> Expr:
    """log1p(argument), or log(2 x) where squares in `argument` may have overflowed."""
    large = x > b.pick(2.0**30, 2.0**60)
    high, low = b.of_type(LN2)
    result = log1p_of_ordinary(b, select(large, x, argument))
    result = select(large, result + (high + low), result)
    return select(x < b.infinity, result, x)
