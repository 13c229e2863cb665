"""Pooling over windows."""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontends.common.images import channels_first, channels_last
from tilewright.frontends.tflite.fixed_point import INT32, result_range
from tilewright.frontends.tflite.images import activated, on_images, read_window
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.products import is_integer
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value


def _attributes(n: Node) -> dict[str, Any]:
    kernel = (n.option("filter_h"), n.option("filter_w"))
    window = read_window(n, n[0].shape[1:3], kernel, dilated=False)
    return {"kernel": kernel, "strides": window.strides, "pads": window.pads}


@converts("AVERAGE_POOL_2D")
def average_pool(n: Node) -> Value:
    how = _attributes(n)
    if is_integer(n):
        return channels_last(n.builder, _integer_means(n, channels_first(n.builder, n[0]), how))
    return activated(n, on_images(n, n[0], lambda x: n.builder.avg_pool(x, **how)))


def _integer_means(n: Node, x: Value, how: dict[str, Any]) -> Value:
    """Sums of windows, divided by their numbers of elements, halves rounded away from zero."""
    b = n.builder
    count = math.prod(how["kernel"])
    # Means of windows times their sizes; sums of bytes fit in floats of 32 bits.
    work = "float32" if x.dtype.bits == 8 else "float64"
    ones = b.full(n.constant(1.0, work), shape=[1, 1, *x.shape[2:]])
    sizes, sums = (
        b.cast(b.round(b.mul(_counted(n, v, how), n.constant(float(count), work))), dtype=INT32)
        for v in (ones, b.cast(x, dtype=work))
    )
    half = b.div(sizes, n.constant(2, INT32))
    is_above = b.greater(sums, n.constant(0, INT32))
    means = b.div(b.where(is_above, b.add(sums, half), b.sub(sums, half)), sizes)
    return _held(n, b.cast(means, dtype=x.dtype))


def _counted(n: Node, x: Value, how: dict[str, Any]) -> Value:
    return n.builder.avg_pool(x, count_include_pad=True, **how)


def _held(n: Node, x: Value) -> Value:
    limits = result_range(n, n.activation)
    if (limits.low, limits.high) == (x.dtype.min_value, x.dtype.max_value):
        return x
    return n.builder.clip(x, n.scalar(limits.low, x), n.scalar(limits.high, x))


@converts("MAX_POOL_2D")
def max_pool(n: Node) -> Value:
    how = _attributes(n)
    y = on_images(n, n[0], lambda x: n.builder.max_pool(x, **how))
    return _held(n, y) if is_integer(n) else activated(n, y)


@converts("L2_POOL_2D")
def l2_pool(n: Node) -> Value:
    """The root of the mean of squares."""
    how, b = _attributes(n), n.builder
    squares = on_images(n, b.mul(n[0], n[0]), lambda x: b.avg_pool(x, **how))
    return activated(n, b.sqrt(squares))
