"""Conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.bounds import bounds
from tilewright.arith.interval import Interval
from tilewright.arith.ranges import Ranges
from tilewright.ir import Broadcast, Cast, Const, DType, Expr, cast, const

Rule = Callable[[Any, Ranges], Expr | None]


def _chained(e: Cast, ranges: Ranges) -> Expr | None:
    """cast(cast(x, middle), last) = cast(x, last), where the middle loses nothing"""
    if not isinstance(e.a, Cast):
        return None
    x, middle = e.a.a, e.a.dtype
    direct = _keeps(x, middle, ranges) and _agrees(x, middle, e.dtype, ranges)
    return cast(x, e.dtype) if direct or _only_cuts(x.dtype, middle, e.dtype) else None


def _only_cuts(first: DType, middle: DType, last: DType) -> bool:
    """For integers: the low bits of the middle are those of the first."""
    whole = last.is_integer and middle.is_integer and (first.is_integer or first.is_bool)
    return whole and last.bits <= middle.bits


def _keeps(x: Expr, middle: DType, ranges: Ranges) -> bool:
    """Does every value of `x` survive in the middle type?"""
    first = x.dtype
    if first.is_float:
        return middle.is_float and _contains_float(middle, first)
    if middle.is_bool:
        return first.is_bool
    values = _values(x, ranges)
    if middle.is_integer:
        return values.within(_of_type(middle))
    assert middle.float_format is not None
    exact = 1 << (middle.float_format.mantissa + 1)
    return exact <= middle.max_value and values.lies_in(-exact, exact)


def _agrees(x: Expr, middle: DType, last: DType, ranges: Ranges) -> bool:
    """Floats saturate where integers wrap around: without the middle, this must be the same."""
    if x.dtype.is_float or not middle.is_float or not last.is_integer:
        return True
    return _values(x, ranges).within(_of_type(last))


def _values(x: Expr, ranges: Ranges) -> Interval:
    return bounds(x, ranges).intersect(_of_type(x.dtype))


def _of_type(dtype: DType) -> Interval:
    return Interval(int(dtype.min_value), int(dtype.max_value))


def _contains_float(wide: DType, narrow: DType) -> bool:
    a, b = wide.float_format, narrow.float_format
    assert a is not None and b is not None
    special = a.has_infinity >= b.has_infinity and a.has_nan >= b.has_nan and a.signed >= b.signed
    wider = a.exponent > b.exponent or (a.exponent == b.exponent and a.bias == b.bias)
    return wide is narrow or (special and wider and a.mantissa >= b.mantissa and a.bias >= b.bias)


def _same_type(e: Cast, _r: Ranges) -> Expr | None:
    return e.a if e.a.dtype is e.dtype else None


def _of_narrow_point(e: Cast, ranges: Ranges) -> Expr | None:
    """A conversion between integers whose operand can only have one value."""
    if not (e.dtype.is_integer and e.a.dtype.is_integer) or e.dtype.is_vector:
        return None
    limits = bounds(e.a, ranges)
    if not limits.is_point or isinstance(e.a, Const | Broadcast):
        return None
    assert limits.low is not None
    return cast(const(limits.low, e.a.dtype), e.dtype)


RULES: dict[object, tuple[Rule, ...]] = {Cast: (_same_type, _chained, _of_narrow_point)}
