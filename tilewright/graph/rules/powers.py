"""Costly operators replaced by cheaper ones, to within the rounding of a multiplication."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Value
from tilewright.graph.rules.rewriter import Rule
from tilewright.graph.rules.site import Site, number_in

#: Divisors whose reciprocals are far from overflow and underflow.
_LEAST, _MOST = 2.0**-60, 2.0**60


def _power(s: Site) -> Value | None:
    """x ** 2 = x x; x ** 3 = x x x"""
    exponent = number_in(s.arg(1))
    if exponent not in (2, 3) or not s.x.dtype.is_float or s.result.shape != s.x.shape:
        return None
    square = s.emit("mul", s.x, s.x)
    return square if exponent == 2 else s.emit("mul", square, s.x)


def _divided(s: Site) -> Value | None:
    """f(x / c) = f(x * (1 / c)) where f is smooth: its argument is rounded anyway"""
    inner = s.private(s.x, "div")
    divisor = None if inner is None else number_in(inner.args[1])
    if inner is None or divisor is None or not _LEAST < abs(divisor) < _MOST:
        return None
    x, c = inner.args
    assert x is not None and c is not None
    if not x.dtype.is_float or x.dtype.bits < 32 or x.shape != s.x.shape:
        return None
    inverse = s.constant(np.full(c.tensor.static_shape, 1 / divisor), c)
    return s.again(s.call, [s.emit("mul", x, inverse)])


RULES: dict[str, tuple[Rule, ...]] = {
    "pow": (_power,),
    **dict.fromkeys(("erf", "tanh", "sigmoid"), (_divided,)),
}
