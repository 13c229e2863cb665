"""Sums of quantized products converted to another scale, in fixed-point arithmetic."""

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
#: Bits that the first of two roundings shifts out.
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
    least: int = 1,
) -> Type:
    """x · multiplier / 2**shift, rounded (halves upward), plus `zero`, clamped to low and high.

    Multiplier and shift are int32 and broadcast to x; shifts are from 1 to 62. The product is in
    int64, where it must have room. `twice` rounds after 31 bits first, and then what is left of the
    shift with halves away from zero, as machines do that have an instruction for the first step.
    No shift is less than `least`. From 31 on, two roundings of int32 need no more than 32 bits, and
    some machines have instructions for them.
    """
    require_kind("integer", x, multiplier, shift)
    require_same_dtype(multiplier, shift)
    for value in (multiplier, shift):
        require_broadcast_to(x.shape, value.shape, "the multiplier and the shift")
    if not dtype.is_integer or not dtype.min_value <= low <= high <= dtype.max_value:
        raise UserError(f"requantize gives integers from {low} to {high}, not {dtype}")
    return TensorType(dtype, x.shape)


def _is_narrow(dtype: DType, ends: tuple[int, int], least: int, twice: bool) -> bool:
    """Whether two roundings, and bounds without the zero point, fit 32 bits."""
    fits = all(_INT32.min_value <= end <= _INT32.max_value for end in ends)
    return fits and twice and least >= _HIGH and dtype is _INT32


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
    least: int,
) -> Array:
    del least
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
    least: int,
) -> te.Tensor:
    def wide_element(e: Expr, m: Expr, s: Expr) -> Expr:
        rounded = _rounded(e, m, s, twice)
        return te.cast(te.clip(rounded + zero, low, high), dtype)

    def narrow_element(e: Expr, m: Expr, s: Expr) -> Expr:
        rounded = _rounded_narrow(e, m, s, least, ends[0])
        return te.cast(te.clip(rounded, *ends) + zero, dtype)

    ends = (low - zero, high - zero)
    element = narrow_element if _is_narrow(x.dtype, ends, least, twice) else wide_element
    return mapped(element, x, multiplier, shift, name="requantized")


def _rounded(e: Expr, m: Expr, s: Expr, twice: bool) -> Expr:
    """In 64 bits. Choices by the shift are arithmetic: if an element were read on only one side of
    a select, it could not be computed in the tiles of its sum."""
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


def _rounded_narrow(e: Expr, m: Expr, s: Expr, least: int, low: int) -> Expr:
    """The high half of the product, rounded, and then divided by a power of two in 32 bits:
    negative ones minus one, where bits are left to shift, so that halves round away from zero.
    Results are clamped to `low`: if that is not negative, it does not matter how negative ones
    are rounded."""
    high = te.mulhi_doubled(e, m)
    if low >= 0:
        return te.shift_nearest(high, s - _HIGH)
    signs = high if least > _HIGH else high & (_HIGH - s)
    return te.shift_nearest(high + (signs >> _HIGH), s - _HIGH)


requantize.layouts(elementwise_layouts)
