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

_INT64 = DType.of("int64")
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
) -> Type:
    """x · multiplier / 2**shift, rounded (halves upward), plus `zero`, clamped to low and high.

    Multiplier and shift are int32 and broadcast to x; shifts are from 1 to 62. The product is in
    int64, where it must have room. `twice` rounds after 31 bits first, and then what is left of the
    shift with halves away from zero, as machines do that have an instruction for the first step.
    """
    require_kind("integer", x, multiplier, shift)
    require_same_dtype(multiplier, shift)
    for value in (multiplier, shift):
        require_broadcast_to(x.shape, value.shape, "the multiplier and the shift")
    if not dtype.is_integer or not dtype.min_value <= low <= high <= dtype.max_value:
        raise UserError(f"requantize gives integers from {low} to {high}, not {dtype}")
    return TensorType(dtype, x.shape)


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
) -> Array:
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
) -> te.Tensor:
    one = te.const(1, _INT64)

    def element(e: Expr, m: Expr, s: Expr) -> Expr:
        by = te.cast(s, _INT64)
        first = te.minimum(by, _HIGH) if twice else by
        product = te.cast(e, _INT64) * te.cast(m, _INT64)
        rounded = (product + (one << (first - 1))) >> first
        if twice:
            rest = by - first
            less = te.select(rounded < 0, one, te.const(0, _INT64))
            moved = rounded + ((one << rest) >> 1) - less
            rounded = te.select(rest > 0, moved, rounded) >> rest
        return te.cast(te.clip(rounded + zero, low, high), dtype)

    return mapped(element, x, multiplier, shift, name="requantized")


requantize.layouts(elementwise_layouts)
