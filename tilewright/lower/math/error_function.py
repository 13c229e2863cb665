"""erf."""

from __future__ import annotations

from tilewright.ir import Expr, maximum, minimum, select
from tilewright.lower.math.builder import MathBuilder
from tilewright.lower.math.coefficients import ERF, ERF_RATIONAL, LOG_ERFC
from tilewright.lower.math.exponential import exp_of_moderate

#: From here on erf rounds to 1 in float32, and in float64.
_BOUND, _DOUBLE_BOUND = 4.0, 6.0


def erf(b: MathBuilder, x: Expr) -> Expr:
    if b.is_double or not b.fused:
        return _erf_by_parts(b, x)
    x = minimum(maximum(x, -_BOUND), _BOUND)
    return b.line_and_ratio(ERF_RATIONAL, 0.25, x)


def _erf_by_parts(b: MathBuilder, x: Expr) -> Expr:
    """A polynomial up to 1; 1 - exp(P(|x| - 1)) beyond."""
    size = b.abs(x)
    square = size * size
    small = b.fma(size, b.polynomial(b.of_type(ERF), square), size)
    beyond = minimum(maximum(size, 1.0), _DOUBLE_BOUND) - 1.0
    large = 1.0 - exp_of_moderate(b, b.polynomial(b.of_type(LOG_ERFC), beyond))
    return b.with_sign(select(size < 1.0, small, large), x)
