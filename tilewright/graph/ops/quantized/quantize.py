"""Real numbers as small integers or floats, and back: real = (stored - zero point) * scale.

The scale is one number, one for each index of `axis`, or, with `block`, one for each block of that
many elements along `axis`; the zero point has the shape of the scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, is_single
from tilewright.graph.layouts.images import Blocking, Form, elementwise_layouts
from tilewright.graph.ops.elementwise.cast import cast_reference, converted
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.ops.reduce.reduced import accumulator, reduce_over
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

_FLOAT32, _UINT8 = DType.of("float32"), DType.of("uint8")

# ---- quantize -----------------------------------------------------------------------------------


@op
def quantize(
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    dtype: DType | None = None,
    axis: int = 1,
    block: int = 0,
    saturate: bool = True,
    precision: DType | None = None,
) -> Type:
    """round(x / scale) + zero_point, clamped to the result's type: that of the zero point, else
    `dtype`, else uint8. The quotient is taken in `precision`, or the type of the scale."""
    require_kind("number", x)
    require_kind("float", scale)
    _require_scales(x, scale, zero_point, axis, block)
    result = zero_point.dtype if zero_point is not None else dtype or _UINT8
    if dtype is not None and dtype is not result:
        raise UserError(f"quantize to {dtype} is given a zero point of {result}")
    return TensorType(result, x.shape)


@quantize.reference
def quantize_reference(
    x: Array,
    scale: Array,
    zero_point: Array | None,
    *,
    dtype: DType | None,
    axis: int,
    block: int,
    saturate: bool,
    precision: DType | None,
) -> Array:
    result = DType.of(zero_point.dtype) if zero_point is not None else dtype or _UINT8
    work = (precision or DType.of(scale.dtype)).numpy
    with np.errstate(all="ignore"):
        quotient = x.astype(work) / _spread(scale, x.shape, axis, block).astype(work)
        if result.is_float:
            return _to_small_float(quotient, zero_point, x.shape, axis, block, result, saturate)
        rounded = np.rint(quotient).astype(np.float64)
        if zero_point is not None:
            rounded = rounded + _spread(zero_point, x.shape, axis, block).astype(np.float64)
        held = np.clip(np.nan_to_num(rounded), result.min_value, result.max_value)
        return held.astype(np.int64).astype(result.numpy)


def _to_small_float(
    quotient: Array,
    zero_point: Array | None,
    shape: Sequence[int],
    axis: int,
    block: int,
    result: DType,
    saturate: bool,
) -> Array:
    if zero_point is not None and result.bits < 8:
        quotient = quotient + _spread(zero_point, shape, axis, block).astype(quotient.dtype)
    return cast_reference(quotient, dtype=result, saturate=saturate)


@quantize.compute
def quantize_compute(
    x: te.Tensor,
    scale: te.Tensor,
    zero_point: te.Tensor | None,
    *,
    dtype: DType | None,
    axis: int,
    block: int,
    saturate: bool,
    precision: DType | None,
) -> te.Tensor:
    result = zero_point.dtype if zero_point is not None else dtype or _UINT8
    work = precision or scale.dtype

    def element(*i: Expr) -> Expr:
        quotient = te.cast(x[i], work) / te.cast(scale[_at(scale, x.ndim, i, axis, block)], work)
        zero = None if zero_point is None else zero_point[_at(zero_point, x.ndim, i, axis, block)]
        if not result.is_float:
            return to_integer(quotient, zero, result)
        if zero is not None and result.bits < 8:
            quotient = quotient + te.cast(zero, work)
        return converted(quotient, result, saturate)

    return te.compute(x.shape, element, name="quantize")


def to_integer(quotient: Expr, zero: Expr | None, result: DType) -> Expr:
    """A real number rounded, shifted by the zero point and clamped to an integer type."""
    wide = te.cast(quotient, accumulator(quotient.dtype))
    rounded = te.round(wide)
    rounded = rounded if zero is None else rounded + te.cast(te.cast(zero, "int32"), wide.dtype)
    held = te.clip(rounded, result.min_value, result.max_value)
    return te.cast(te.cast(held, "int32"), result)


# ---- dequantize ---------------------------------------------------------------------------------


@op
def dequantize(
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    dtype: DType | None = None,
    axis: int = 1,
    block: int = 0,
) -> Type:
    """(x - zero_point) * scale in `dtype`, or the type of the scale."""
    require_kind("number", x)
    require_kind("float", scale)
    _require_scales(x, scale, zero_point, axis, block)
    return TensorType(dtype or scale.dtype, x.shape)


@dequantize.reference
def dequantize_reference(
    x: Array,
    scale: Array,
    zero_point: Array | None,
    *,
    dtype: DType | None,
    axis: int,
    block: int,
) -> Array:
    values = x.astype(np.float32)
    if zero_point is not None:
        values = values - _spread(zero_point, x.shape, axis, block).astype(np.float32)
    factors = _spread(scale, x.shape, axis, block)
    work = np.float64 if scale.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        result = values.astype(work) * factors.astype(work)
    return result.astype(scale.dtype if dtype is None else dtype.numpy)


@dequantize.compute
def dequantize_compute(
    x: te.Tensor,
    scale: te.Tensor,
    zero_point: te.Tensor | None,
    *,
    dtype: DType | None,
    axis: int,
    block: int,
) -> te.Tensor:
    work = accumulator(scale.dtype) if not scale.dtype.is_storage_only else _FLOAT32

    def element(*i: Expr) -> Expr:
        value = te.cast(x[i], _FLOAT32)
        if zero_point is not None:
            zero = zero_point[_at(zero_point, x.ndim, i, axis, block)]
            value = value - te.cast(zero, _FLOAT32)
        factor = te.cast(scale[_at(scale, x.ndim, i, axis, block)], work)
        return te.cast(te.cast(value, work) * factor, dtype or scale.dtype)

    return te.compute(x.shape, element, name="dequantize")


# ---- layouts ------------------------------------------------------------------------------------


@quantize.layouts
@dequantize.layouts
def single_scale_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """A single scale fits any layout."""
    scale = call.args[1]
    if scale is not None and is_single(scale.shape):
        yield from elementwise_layouts(blocking, call, out)


# ---- scales -------------------------------------------------------------------------------------


def _require_scales(
    x: Value, scale: Value, zero_point: Value | None, axis: int, block: int
) -> None:
    if zero_point is not None and zero_point.ndim != scale.ndim:
        raise UserError(f"the zero point {zero_point} has not the shape of the scale {scale}")
    if zero_point is not None and not is_single(zero_point.shape):
        require_same_shape(scale.shape, zero_point.shape, "the scale and the zero point")
    if is_single(scale.shape):
        return
    axis = axis_of(axis, x.ndim)
    if block and scale.ndim != x.ndim:
        raise UserError(f"blocks of {block} need a scale of {x.ndim} dimensions, not {scale}")
    if not block and scale.ndim != 1:
        raise UserError(
            f"the scale is {scale}", reason="it is neither one number nor one for each index"
        )
    wanted: list[Any] = list(x.shape) if block else [x.shape[axis]]
    if block:
        wanted[axis] = (x.shape[axis] + (block - 1)) // block
    require_same_shape(scale.shape, wanted, f"the scale and what axis {axis} needs")


def _at(
    parameter: te.Tensor, rank: int, i: Sequence[Expr], axis: int, block: int
) -> tuple[Expr, ...]:
    """The indices of the scale or zero point of an element."""
    if is_single(parameter.shape):
        return (te.const(0),) * parameter.ndim
    axis = axis_of(axis, rank)
    if not block:
        return (i[axis],)
    return (*i[:axis], te.floordiv(i[axis], block), *i[axis + 1 :])


def _spread(parameter: Array, shape: Sequence[int], axis: int, block: int) -> Array:
    """A scale or zero point in a shape that broadcasts to an array of this shape."""
    if parameter.size == 1 and parameter.ndim < 2:
        return parameter.reshape(())
    axis = axis_of(axis, len(shape))
    if block:
        repeated = np.repeat(parameter, block, axis=axis)
        return np.take(repeated, np.arange(shape[axis]), axis=axis)
    return parameter.reshape([-1 if n == axis else 1 for n in range(len(shape))])


# ---- dynamic ------------------------------------------------------------------------------------


@op
def dynamic_quantize(x: Value) -> tuple[Type, ...]:
    """uint8 with a scale and a zero point that fit its range: (y, scale, zero point)."""
    require_kind("float", x)
    return TensorType(_UINT8, x.shape), TensorType(_FLOAT32), TensorType(_UINT8)


@dynamic_quantize.reference
def dynamic_quantize_reference(x: Array) -> tuple[Array, ...]:
    wide = x.astype(np.float32)
    low = np.minimum(np.float32(0), wide.min(initial=0))
    high = np.maximum(np.float32(0), wide.max(initial=0))
    spread = np.float32(1) if high == low else np.float32(high - low)
    scale = np.float32(spread / np.float32(255))
    zero = np.rint(np.clip(-low / scale, 0, 255))
    y = np.clip(np.rint(wide / scale) + zero, 0, 255).astype(np.uint8)
    return y, np.asarray(scale), np.asarray(zero.astype(np.uint8))


@dynamic_quantize.compute
def dynamic_quantize_compute(x: te.Tensor) -> tuple[te.Tensor, ...]:
    axes = tuple(range(x.ndim))

    def wide(e: Expr) -> Expr:
        return te.cast(e, _FLOAT32)

    low = reduce_over(te.min, x, axes, False, wide, "least")
    high = reduce_over(te.max, x, axes, False, wide, "greatest")

    def spread(a: Expr, b: Expr) -> Expr:
        size = te.maximum(b, 0.0) - te.minimum(a, 0.0)
        return te.select(size == 0, te.const(1.0), size) / 255.0

    scale = mapped(spread, low, high, name="scale")

    def zero_of(a: Expr, s: Expr) -> Expr:
        place = te.round(te.clip(-te.minimum(a, 0.0) / s, 0.0, 255.0))
        return te.cast(te.cast(place, "int32"), _UINT8)

    zero = mapped(zero_of, low, scale, name="zero_point")
    y = mapped(lambda e, s, z: to_integer(wide(e) / s, z, _UINT8), x, scale, zero, name="quantized")
    return y, scale, zero
