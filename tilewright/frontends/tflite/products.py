"""Products of quantized tensors: sums of bytes, exact in int32, scaled to the result.

Zero points are corrected for by constants, so that the products are those of bytes, for which
machines have instructions:

    sum (x - p)·w  =  sum x·w  -  p · sum w
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.frontends.common.images import WindowAttributes, channels_first
from tilewright.frontends.tflite.fixed_point import (
    INT32,
    dequantized,
    multiplier_of,
    result_range,
    scaled,
)
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.tensors import Quantization
from tilewright.graph import Array, Dim, Value
from tilewright.ir import DType
from tilewright.support.errors import UserError

_INT64: Final = DType.of("int64")
_STORED: Final = ("int8", "uint8", "int16")


class Factors(NamedTuple):
    """The weights of a node, operand 1: the order of their dimensions in the graph's operators, and
    the axis of outputs, as numbered in the file."""

    node: Node
    axes: tuple[int, ...]
    outputs: int

    def arranged(self) -> Value:
        """The stored weights, in the graph's order."""
        return self.node.builder.transpose(self.node[1], axes=self.axes)

    def array(self) -> Array:
        """The stored weights, in the graph's order."""
        return np.transpose(self.node.array(1), self.axes)

    @property
    def quantization(self) -> Quantization:
        """One scale, or one for each output."""
        found = self.node.quantization(1)
        if not found.is_single and found.axis != self.outputs:
            raise UserError(f"the weights are quantized along axis {found.axis}")
        return found


def is_integer(n: Node, index: int = 0) -> bool:
    """Whether an operand is a tensor of quantized integers."""
    return n.tensor(index).type in _STORED


def real_weights(n: Node, weights: Factors) -> Value:
    """Weights of any type as floats, for an image of floats."""
    value = n[1]
    if value.dtype.is_integer:
        value = dequantized(n, value, n.quantization(1))
    elif value.dtype is not n[0].dtype:
        value = n.builder.cast(value, dtype=DType.of("float32"))
    return n.builder.transpose(value, axes=weights.axes)


def centred_weights(array: Array, how: Quantization, axis: int = 0) -> Array:
    """Weights without their zero points, in the least type that holds them."""
    shape = [-1 if n == axis and not how.is_single else 1 for n in range(array.ndim)]
    moved = array.astype(np.int16) - how.zeros.astype(np.int16).reshape(shape)
    fits = moved.size == 0 or (moved.min() >= -128 and moved.max() <= 127)
    return moved.astype(np.int8) if fits else moved


# ---- convolutions -------------------------------------------------------------------------------


def quantized_conv(
    n: Node, image: Value, weights: Factors, window: WindowAttributes, groups: int
) -> Value:
    """The convolution of a quantized image, channels first, quantized again."""
    how = weights.quantization
    array = np.ascontiguousarray(centred_weights(weights.array(), how))
    image, pads = _padded(n, image, n.quantization(0).zero, window)
    total = n.builder.conv(
        image,
        n.constant(array),
        strides=window.strides,
        pads=pads,
        dilations=window.dilations,
        groups=groups,
        dtype=_sum_type(n),
    )
    rank = len(window.strides)
    sums = array.reshape(len(array), -1).sum(axis=1, dtype=np.int64)
    total = _with_bias(n, total, 2, n.quantization(0).zero * sums, (-1, *[1] * rank))
    return requantized(n, total, 0, how, (-1, *[1] * rank))


def _sum_type(n: Node, index: int = 0) -> DType:
    """Sums of products of 16 bits have 64, unless the bias determines otherwise."""
    bias = n.get(3 if index else 2)
    is_narrow = bias is not None and bias.dtype is INT32
    return _INT64 if n.tensor(index).type == "int16" and not is_narrow else INT32


def _padded(
    n: Node, image: Value, zero: int, window: WindowAttributes
) -> tuple[Value, tuple[Dim, ...]]:
    """The image padded by its zero point, where that is not 0."""
    rank = len(window.strides)
    if not zero or all(isinstance(p, int) and p == 0 for p in window.pads):
        return image, window.pads
    around = {"before": (0, 0, *window.pads[:rank]), "after": (0, 0, *window.pads[rank:])}
    return n.builder.pad(image, n.scalar(zero, image), **around), (0,) * (2 * rank)


def _with_bias(n: Node, total: Value, index: int, moved: Array, shape: tuple[int, ...]) -> Value:
    """Sums plus the bias, minus the effect of the zero point."""
    b = n.builder
    bias = n.find_array(index)
    if bias is not None:
        moved = bias.astype(np.int64) - moved
    elif n.has(index):
        given = b.cast(b.reshape(n[index], shape=shape), dtype=total.dtype)
        return b.add(b.add(total, given), n.constant(-moved.reshape(shape), total.dtype))
    else:
        moved = -moved
    if not moved.any():
        return total
    return b.add(total, n.constant(moved.reshape(shape).astype(total.dtype.numpy), total.dtype))


def requantized(
    n: Node,
    total: Value,
    index: int,
    how: Quantization,
    shape: tuple[int, ...] = (),
    *,
    twice: bool = True,
) -> Value:
    """Sums of products of operand `index` by weights, quantized as the result."""
    scales = how.scales.reshape(()) if how.is_single else how.scales.reshape(shape)
    # Kernels for unsigned bytes, the older ones, multiply scales as floats of 32 bits.
    work = np.float32 if n.tensor(index).type == "uint8" else np.float64
    products = (scales.astype(work) * work(n.quantization(index).scale)).astype(np.float64)
    factors = products / float(n.out_quantization().scale)
    limits = result_range(n, n.activation)
    found = multiplier_of(factors)
    if total.dtype is _INT64:
        found, twice = found.shortened(), False
    return scaled(n, total, found, **limits._asdict(), twice=twice)


def quantized_conv_transpose(
    n: Node, image: Value, weights: Factors, window: WindowAttributes, extra: list[Dim]
) -> Value:
    """The transposed convolution of a quantized image; sums in floats of 64 bits are exact."""
    how, b = weights.quantization, n.builder
    zero = n.quantization(2).zero
    array = centred_weights(weights.array(), how, 1)
    centred = b.sub(b.cast(image, dtype="float64"), n.constant(float(zero), "float64"))
    total = b.conv_transpose(
        centred,
        n.constant(array.astype(np.float64)),
        strides=window.strides,
        pads=window.pads,
        output_pads=extra,
    )
    total = b.cast(total, dtype=_sum_type(n, 2))
    shape = (-1, 1, 1)
    total = _with_bias(n, total, 3, np.zeros(array.shape[1], np.int64), shape)
    return requantized(n, total, 2, how, shape)


# ---- matrices -----------------------------------------------------------------------------------


def quantized_dense(n: Node, x: Value) -> Value:
    """Rows of quantized numbers by weights outputs×inputs, quantized again."""
    how = n.quantization(1)
    zero = n.quantization(0).zero
    stored = n.find_array(1)
    if stored is None:
        return _dense_of_computed(n, x)
    array = centred_weights(stored, how)
    total = _product(n, x, array)
    total = _with_bias(n, total, 2, zero * array.sum(axis=1, dtype=np.int64), (-1,))
    return requantized(n, total, 0, how, (-1,), twice=False)


def _product(n: Node, x: Value, weights: Array) -> Value:
    b = n.builder
    transposed = n.constant(np.ascontiguousarray(weights.T))
    if _sum_type(n) is _INT64:
        return b.matmul(b.cast(x, dtype=_INT64), b.cast(transposed, dtype=_INT64))
    return b.matmul_integer(x, transposed)


def _dense_of_computed(n: Node, x: Value) -> Value:
    """Weights that the model computes."""
    b = n.builder
    zeros = [n.scalar(n.quantization(k).zero, n[k]) for k in (0, 1)]
    total = b.matmul_integer(x, b.transpose(n[1], axes=(1, 0)), *zeros)
    total = _with_bias(n, total, 2, np.zeros(1, np.int64), (-1,))
    return requantized(n, total, 0, n.quantization(1), (-1,), twice=False)


# ---- floats by bytes ----------------------------------------------------------------------------


class Rows(NamedTuple):
    """Floats as bytes: x is about (stored - zero) * scale, with one of each for every row."""

    stored: Value
    scale: Value
    zero: Value | None


def is_hybrid(n: Node) -> bool:
    """Whether floats are multiplied by weights of bytes."""
    return n[0].dtype.is_float and n.tensor(1).type in ("int8", "int4") and n.has(1)


def quantized_rows(n: Node, x: Value, axes: tuple[int, ...], *, asymmetric: bool) -> Rows:
    """Floats as bytes, by their range along axes, as in the reference kernels."""
    b = n.builder
    if not asymmetric:
        most = b.max(b.abs(x), axes=axes, keepdims=True)
        is_zero = b.equal(most, n.scalar(0, x))
        inverse = b.where(is_zero, n.scalar(0, x), b.div(n.scalar(127, x), most))
        steps = b.clip(b.round_away(b.mul(x, inverse)), n.scalar(-127, x), n.scalar(127, x))
        return Rows(b.cast(steps, dtype="int8"), b.div(most, n.scalar(127, x)), None)
    low = b.minimum(b.min(x, axes=axes, keepdims=True), n.scalar(0, x))
    high = b.maximum(b.max(x, axes=axes, keepdims=True), n.scalar(0, x))
    spread = b.sub(high, low)
    spread = b.where(b.equal(spread, n.scalar(0, x)), n.scalar(255, x), spread)
    scale = b.div(spread, n.scalar(255, x))
    # The zero point is computed from the end of the range that is nearer to it.
    steps_low, steps_high = b.div(low, scale), b.div(high, scale)
    is_low = b.less(b.add(n.scalar(128, x), b.abs(steps_low)), b.add(n.scalar(127, x), steps_high))
    by_low, by_high = b.sub(n.scalar(-128, x), steps_low), b.sub(n.scalar(127, x), steps_high)
    zero = b.round_away(b.where(is_low, by_low, by_high))
    zero = b.clip(zero, n.scalar(-128, x), n.scalar(127, x))
    inverse = b.div(n.scalar(1, x), scale)
    steps = b.round_away(b.add(zero, b.mul(x, inverse)))
    stored = b.clip(steps, n.scalar(-128, x), n.scalar(127, x))
    return Rows(b.cast(stored, dtype="int8"), scale, zero)


def hybrid_dense(n: Node, x: Value, asymmetric: bool) -> Value:
    """Rows of floats by weights of bytes outputs×inputs, without the bias."""
    b, how = n.builder, n.quantization(1)
    rows = quantized_rows(n, x, (x.ndim - 1,), asymmetric=asymmetric)
    weights = n.array(1)
    total = b.cast(
        b.matmul_integer(rows.stored, n.constant(np.ascontiguousarray(weights.T))), dtype=x.dtype
    )
    if rows.zero is not None:
        sums = weights.sum(axis=1, dtype=np.int64).astype(np.float32)
        total = b.sub(total, b.mul(rows.zero, n.constant(sums)))
    scales: Any = how.scales.astype(np.float32)
    scales = scales.reshape(()) if how.is_single else scales
    return b.mul(total, b.mul(rows.scale, n.constant(scales)))


def hybrid_conv(n: Node, weights: Factors, window: WindowAttributes, groups: int) -> Value:
    """The convolution of an image of floats, channels last, by weights of bytes, channels first and
    without the bias; each image is quantized by its own range."""
    b, how, x = n.builder, weights.quantization, n[0]
    axes = tuple(range(1, x.ndim))
    rows = quantized_rows(n, x, axes, asymmetric=not how.is_single)
    stored = n.constant(np.ascontiguousarray(weights.array()))

    def convolved(image: Value) -> Value:
        total = b.conv(
            image,
            stored,
            strides=window.strides,
            pads=window.pads,
            dilations=window.dilations,
            groups=groups,
            dtype=INT32,
        )
        return b.cast(total, dtype="float32")

    total = convolved(channels_first(n.builder, rows.stored))
    if rows.zero is not None:
        # The effect of the zero point on each sum: that of the weights inside the image.
        ones = b.full(n.constant(1, "int8"), shape=[1, x.shape[-1], *x.shape[1:-1]])
        total = b.sub(total, b.mul(channels_first(n.builder, rows.zero), convolved(ones)))
    scales = how.scales.astype(np.float32)
    scales = scales if how.is_single else scales.reshape(-1, *[1] * (x.ndim - 2))
    return b.mul(total, b.mul(channels_first(n.builder, rows.scale), n.constant(scales)))
