"""Sums of quantized products brought to another scale, in fixed-point arithmetic."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind, require_same_dtype
from tilewright.graph.sizes.broadcast import require_broadcast_to
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

_INT64, _INT32 = DType.of("int64"), DType.of("int32")
#: Bits that the first of two roundings takes off.
_HIGH = 31


@op
def requantize(
    x: Value,
    multiplier: Value,
    shift: Value,
    *,
    zero: int,
    low: int,
    high: int,
    dtype: DType,
    twice: bool = False,
    narrow: bool = False,
) -> Type:
    """x · multiplier / 2**shift, rounded (halves upward), plus `zero`, clamped to low and high.

    Multiplier and shift are int32 and broadcast to x; shifts are from 1 to 62. The product is in
    int64, where it must have room. `twice` rounds after 31 bits first, and then what is left of the
    shift with halves away from zero, as machines do that have an instruction for the first step.
    `narrow` says that x is int32 and all shifts of the two roundings are 31 or more: all but the
    product is in 32 bits then.
    """
    require_kind("integer", x, multiplier, shift)
    require_same_dtype(multiplier, shift)
    for value in (multiplier, shift):
        require_broadcast_to(x.shape, value.shape, "the multiplier and the shift")
    if not dtype.is_integer or not dtype.min_value <= low <= high <= dtype.max_value:
        raise UserError(f"requantize gives integers from {low} to {high}, not {dtype}")
    if narrow and not (twice and x.dtype is _INT32 and _fits(low - zero) and _fits(high - zero)):
        raise UserError("requantize is narrow where int32 is rounded twice and kept in int32")
    return TensorType(dtype, x.shape)


def _fits(number: int) -> bool:
    return _INT32.min_value <= number <= _INT32.max_value


@requantize.reference
def requantize_reference(
    x: Array,
    multiplier: Array,
    shift: Array,
    *,
    zero: int,
    low: int,
    high: int,
    dtype: DType,
    twice: bool,
    narrow: bool,
) -> Array:
    del narrow
    by = shift.astype(np.int64)
    first = np.minimum(by, _HIGH) if twice else by
    product = x.astype(np.int64) * multiplier.astype(np.int64)
    rounded = (product + (np.int64(1) << (first - 1))) >> first
    half = (np.int64(1) << (by - first)) >> 1
    rounded = np.where(by > first, rounded + half - (rounded < 0), rounded) >> (by - first)
    return np.clip(rounded + zero, low, high).astype(dtype.numpy)


@requantize.compute
def requantize_compute(
    x: te.Tensor,
    multiplier: te.Tensor,
    shift: te.Tensor,
    *,
    zero: int,
    low: int,
    high: int,
    dtype: DType,
    twice: bool,
    narrow: bool,
) -> te.Tensor:
    def wide_element(e: Expr, m: Expr, s: Expr) -> Expr:
        rounded = _rounded(e, m, s, twice)
        return te.cast(te.clip(rounded + zero, low, high), dtype)

    def narrow_element(e: Expr, m: Expr, s: Expr) -> Expr:
        rounded = _rounded_narrow(e, m, s)
        return te.cast(te.clip(rounded, low - zero, high - zero) + zero, dtype)

    element = narrow_element if narrow else wide_element
    return mapped(element, x, multiplier, shift, name="requantized")


def _rounded(e: Expr, m: Expr, s: Expr, twice: bool) -> Expr:
    """In 64 bits. What is chosen by the shift is arithmetic: an element that is read on one side of
    a condition alone could not be computed beside the sums that it is made of."""
    one = te.const(1, _INT64)
    by = te.cast(s, _INT64)
    first = te.minimum(by, _HIGH) if twice else by
    product = te.cast(e, _INT64) * te.cast(m, _INT64)
    rounded = (product + (one << (first - 1))) >> first
    if not twice:
        return rounded
    rest = by - first
    less = te.cast(rounded < 0, _INT64) * te.minimum(rest, one)
    return (rounded + ((one << rest) >> 1) - less) >> rest


def _rounded_narrow(e: Expr, m: Expr, s: Expr) -> Expr:
    """The high half of the product, rounded, and then divided by a power of two in 32 bits."""
    one = te.const(1, _INT32)
    product = te.cast(e, _INT64) * te.cast(m, _INT64)
    high = te.cast((product + (1 << (_HIGH - 1))) >> _HIGH, _INT32)
    rest = s - _HIGH
    mask = (one << rest) - 1
    is_over = (high & mask) > (mask >> 1) + te.cast(high < 0, _INT32)
    return (high >> rest) + te.cast(is_over, _INT32)


requantize.layouts(elementwise_layouts)
