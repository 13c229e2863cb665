"""Layers with sliding windows of weights: convolutions, their transposes, and those with separate
weights at each position."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.ops.activation import activated
from tilewright.frontends.darknet.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError

_EPSILON = 1e-6
#: Options of one fork that change what a convolution computes.
_UNKNOWN = ("xnor", "binary", "antialiasing", "share_index", "deform", "assisted_excitation")


@converts("convolutional")
def convolutional(n: Layer) -> Value:
    for option in _UNKNOWN:
        n.refuse(option)
    x, filters, size = n.x, n.positive("filters", 1), n.positive("size", 1)
    channels, _, _ = n.image_shape(x)
    groups = n.positive("groups", 1)
    if channels % groups or filters % groups:
        raise UserError(f"{groups} groups of {channels} channels and {filters} filters")
    stride = n.positive("stride", 1)
    norm = _Norm(n, filters)
    weight = n.weights.take(filters, channels // groups, size, size)
    if n.flag("flipped"):
        weight = np.ascontiguousarray(
            weight.reshape(-1, filters).T.reshape(filters, channels // groups, size, size)
        )
    made = n.builder.conv(
        x,
        weight,
        norm.conv_bias,
        strides=[n.positive("stride_y", stride), n.positive("stride_x", stride)],
        pads=[_padding(n, size)] * 4,
        dilations=[n.positive("dilation", 1)] * 2,
        groups=groups,
    )
    return activated(n, norm.of(made), "logistic")


def _padding(n: Layer, size: int) -> int:
    padding = size // 2 if n.flag("pad") else n.integer("padding", 0)
    if padding < 0:
        raise UserError(f"padding is {padding}")
    return padding


class _Norm:
    """What follows the products: a bias, or batch normalisation, which includes it."""

    def __init__(self, n: Layer, filters: int) -> None:
        self._node = n
        self.bias = n.weights.take(filters)
        self._rows: list[Array] = []
        n.refuse("dontloadscales")
        if n.flag("batch_normalize"):
            self._rows = [n.weights.take(filters) for _ in ("scales", "means", "variances")]

    @property
    def conv_bias(self) -> Array | None:
        return None if self._rows else self.bias

    def of(self, x: Value) -> Value:
        if not self._rows:
            return x
        scale, mean, variance = self._rows
        return self._node.builder.batch_norm(x, scale, self.bias, mean, variance, epsilon=_EPSILON)


@converts("deconvolutional")
def deconvolutional(n: Layer) -> Value:
    x, filters, size = n.x, n.positive("filters", 1), n.positive("size", 1)
    channels, _, _ = n.image_shape(x)
    stride = n.positive("stride", 1)
    norm = _Norm(n, filters)
    weight = n.weights.take(channels, filters, size, size)
    made = n.builder.conv_transpose(
        x, weight, norm.conv_bias, strides=[stride] * 2, pads=[_padding(n, size)] * 4
    )
    return activated(n, norm.of(made), "logistic")


@converts("local")
def local(n: Layer) -> Value:
    """A convolution with separate weights at each position."""
    b, x = n.builder, n.x
    filters, size, stride = n.positive("filters", 1), n.positive("size", 1), n.positive("stride", 1)
    channels, height, width = n.image_shape(x)
    pad = size // 2 if n.flag("pad") else 0
    rows, columns = ((e + 2 * pad - size) // stride + 1 for e in (height, width))
    if rows < 1 or columns < 1:
        raise UserError(f"windows of {size} do not fit {x}")
    bias = n.weights.take(filters, rows, columns)
    weight = n.weights.take(rows * columns, filters, channels * size * size)
    image = b.transpose(x, axes=[0, 2, 3, 1])
    seen = b.patches(image, kernel=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)
    # N×rows×columns×size×size×C -> positions×(C·size·size)×N
    seen = b.reshape(
        b.transpose(seen, axes=[1, 2, 5, 3, 4, 0]),
        shape=[rows * columns, channels * size * size, x.shape[0]],
    )
    made = b.transpose(b.matmul(weight, seen), axes=[2, 1, 0])
    return activated(
        n, b.add(b.reshape(made, shape=[x.shape[0], filters, rows, columns]), bias), "logistic"
    )
