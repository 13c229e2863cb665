"""Functions on scalar expressions; a number takes the type of the expressions beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import Expr, as_expr, binary, call, select

_One = Callable[[Any], Expr]
_Two = Callable[[Any, Any], Expr]


def _one(name: str) -> _One:
    def apply(x: Any) -> Expr:
        return call(name, x)

    return _named(apply, name)


def _two(name: str) -> _Two:
    def apply(x: Any, y: Any) -> Expr:
        return call(name, x, y)

    return _named(apply, name)


def _operator(name: str) -> _Two:
    def apply(x: Any, y: Any) -> Expr:
        return binary(name, x, y)

    return _named(apply, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    return function


exp, exp2, expm1 = _one("exp"), _one("exp2"), _one("expm1")
coarse_exp = _one("coarse_exp")
log, log2, log10, log1p = _one("log"), _one("log2"), _one("log10"), _one("log1p")
sqrt, rsqrt = _one("sqrt"), _one("rsqrt")
sin, cos, tan = _one("sin"), _one("cos"), _one("tan")
asin, acos, atan = _one("asin"), _one("acos"), _one("atan")
sinh, cosh, tanh = _one("sinh"), _one("cosh"), _one("tanh")
asinh, acosh, atanh = _one("asinh"), _one("acosh"), _one("atanh")
erf, sigmoid, coarse_sigmoid = _one("erf"), _one("sigmoid"), _one("coarse_sigmoid")
floor, ceil, round, trunc = _one("floor"), _one("ceil"), _one("round"), _one("trunc")
abs = _one("abs")
isnan, isinf, isfinite, signbit = _one("isnan"), _one("isinf"), _one("isfinite"), _one("signbit")
popcount, clz, ctz = _one("popcount"), _one("clz"), _one("ctz")
pow, atan2, copysign = _two("pow"), _two("atan2"), _two("copysign")
mulhi = _two("mulhi")
mulhi_doubled, shift_nearest = _two("mulhi_doubled"), _two("shift_nearest")
floordiv, floormod = _operator("floordiv"), _operator("floormod")
truncdiv, truncmod = _operator("truncdiv"), _operator("truncmod")


def fma(x: Any, y: Any, z: Any) -> Expr:
    """x * y + z, rounded once."""
    return call("fma", x, y, z)


def clip(x: Any, low: Any, high: Any) -> Expr:
    """`x` clamped to `low` and `high`; NaN stays."""
    return binary("min", binary("max", x, low), high)


def if_then_else(condition: Any, a: Any, b: Any) -> Expr:
    """`a` where `condition` holds, else `b`; the other side is not evaluated, so it may be out of
    bounds there."""
    return select(condition, a, b)


def logical_not(condition: Any) -> Expr:
    return ~as_expr(condition)
