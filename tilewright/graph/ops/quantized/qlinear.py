"""Products of quantized tensors whose results are quantized again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, is_single, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.neural.conv import conv_shape, require_bias
from tilewright.graph.ops.neural.matmul import find_product_shape
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.ops.quantized.integer_products import (
    conv_integer_reference,
    integer_convolution,
    integer_product,
    matmul_integer_reference,
    require_parameters,
    require_zeros,
    rows_and_columns,
)
from tilewright.graph.ops.quantized.quantize import to_integer
from tilewright.ir import DType, Expr
from tilewright.tensor import te


@op
def qlinear_matmul(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Type:
    """The quantized product of two quantized tensors; the result has the type of `y_zero`."""
    require_kind("integer", a, b)
    rows, columns = rows_and_columns(a, b)
    require_zeros(a, a_zero, rows)
    require_zeros(b, b_zero, columns)
    for scale, wanted in ((a_scale, rows), (b_scale, columns), (y_scale, ()), (y_zero, ())):
        require_parameters(scale, wanted)
    return TensorType(y_zero.dtype, find_product_shape(a.shape, b.shape))


@qlinear_matmul.reference
def qlinear_matmul_reference(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    total = matmul_integer_reference(a, b, a_zero, b_zero)
    rows = a_scale.reshape(-1, 1) if a_scale.ndim == 1 and a_scale.size > 1 else a_scale
    factor = _f32(rows) * _f32(b_scale) / _f32(y_scale)
    return _requantized(total, factor, y_zero)


@qlinear_matmul.compute
def qlinear_matmul_compute(
    a: te.Tensor,
    a_scale: te.Tensor,
    a_zero: te.Tensor,
    b: te.Tensor,
    b_scale: te.Tensor,
    b_zero: te.Tensor,
    y_scale: te.Tensor,
    y_zero: te.Tensor,
) -> te.Tensor:
    total = integer_product(a, b, a_zero, b_zero)

    def element(*i: Expr) -> Expr:
        row, column = (te.const(0), te.const(0), *i)[-2:]
        factor = _scale(a_scale, i[:-2], (row, te.const(0)))
        factor = factor * _scale(b_scale, i[:-2], (te.const(0), column))
        factor = factor / _single(y_scale)
        real = te.cast(total[i], "float32") * factor
        return to_integer(real, y_zero[(0,) * y_zero.ndim], y_zero.dtype)

    return te.compute(total.shape, element, name="qlinear_matmul")


def _scale(scale: te.Tensor, batch: Sequence[Expr], place: Sequence[Expr]) -> Expr:
    if is_single(scale.shape):
        return _single(scale)
    if scale.ndim == 1:
        return te.cast(scale[next(p for p in place if p is not te.const(0))], "float32")
    full = (*batch, *place)[-scale.ndim :]
    at = [te.const(0) if known_dim(d) == 1 else i for d, i in zip(scale.shape, full, strict=True)]
    return te.cast(scale[tuple(at)], "float32")


def _single(scale: te.Tensor) -> Expr:
    return te.cast(scale[(0,) * scale.ndim], "float32")


def _f32(x: Array) -> Array:
    return x.astype(np.float32)


def _requantized(total: Array, factor: Array, zero: Array) -> Array:
    rounded = np.rint(total.astype(np.float32) * factor) + zero.reshape(()).astype(np.float32)
    info = DType.of(zero.dtype)
    return np.clip(rounded, info.min_value, info.max_value).astype(zero.dtype)


@op
def qlinear_conv(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    weight: Value,
    weight_scale: Value,
    weight_zero: Value | None,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    groups: int = 1,
) -> Type:
    """The quantized convolution of a quantized image; the int32 bias has the scale x · weight.
    The weights have one scale, or one for each output channel; None is faster than zeros."""
    require_kind("integer", x, weight)
    outputs = weight.shape[:1]
    require_zeros(x, x_zero, ())
    require_zeros(weight, weight_zero, outputs)
    for scale, wanted in ((x_scale, ()), (weight_scale, outputs), (y_scale, ()), (y_zero, ())):
        require_parameters(scale, wanted)
    require_bias(bias, weight.shape[0])
    return TensorType(y_zero.dtype, conv_shape(x, weight, strides, pads, dilations, groups))


@qlinear_conv.reference
def qlinear_conv_reference(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weight: Array,
    weight_scale: Array,
    weight_zero: Array | None,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None,
    **window: Any,
) -> Array:
    total = conv_integer_reference(x, weight, x_zero, weight_zero, **window)
    shape = (-1, *[1] * (x.ndim - 2))
    total = total if bias is None else total + bias.reshape(shape)
    factor = _f32(x_scale).reshape(()) * _f32(weight_scale).reshape(shape)
    return _requantized(total, factor / _f32(y_scale).reshape(()), y_zero)


@qlinear_conv.compute
def qlinear_conv_compute(
    x: te.Tensor,
    x_scale: te.Tensor,
    x_zero: te.Tensor,
    weight: te.Tensor,
    weight_scale: te.Tensor,
    weight_zero: te.Tensor | None,
    y_scale: te.Tensor,
    y_zero: te.Tensor,
    bias: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    groups: int,
) -> te.Tensor:
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    total = integer_convolution(x, weight, x_zero, weight_zero, window, groups)

    def element(*i: Expr) -> Expr:
        value = total[i] if bias is None else total[i] + bias[i[1]]
        factor = _single(x_scale) * _scale(weight_scale, (), (i[1],)) / _single(y_scale)
        real = te.cast(value, "float32") * factor
        return to_integer(real, y_zero[(0,) * y_zero.ndim], y_zero.dtype)

    return te.compute(total.shape, element, name="qlinear_conv")
