"""Convolutions, of real numbers and of quantized ones."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.common.images import WindowAttributes, channels_first, channels_last
from tilewright.frontends.common.padding import simplified
from tilewright.frontends.tflite.images import activated, read_window
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.products import (
    Factors,
    hybrid_conv,
    is_hybrid,
    is_integer,
    quantized_conv,
    quantized_conv_transpose,
    real_weights,
)
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr, maximum
from tilewright.support.errors import UserError


@converts("CONV_2D")
def conv_2d(n: Node) -> Value:
    x, weight = n[0], n[1]
    window = read_window(n, x.shape[1:3], weight.shape[1:3], dilated=True)
    groups = _quotient(x.shape[3], weight.shape[3])
    return _convolved(n, Factors(n, (0, 3, 1, 2), 0), window, groups)


@converts("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(n: Node) -> Value:
    x, weight = n[0], n[1]
    window = read_window(n, x.shape[1:3], weight.shape[1:3], dilated=True)
    return _convolved(n, Factors(n, (3, 0, 1, 2), 3), window, _quotient(x.shape[3], 1))


def _convolved(n: Node, weights: Factors, window: WindowAttributes, groups: int) -> Value:
    if is_hybrid(n) and n.find_array(1) is not None:
        y = channels_last(n.builder, hybrid_conv(n, weights, window, groups))
        return activated(n, n.builder.add(y, n[2]) if n.has(2) else y)
    image = channels_first(n.builder, n[0])
    if is_integer(n):
        return channels_last(n.builder, quantized_conv(n, image, weights, window, groups))
    y = n.builder.conv(
        image,
        real_weights(n, weights),
        n.get(2),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=groups,
    )
    return activated(n, channels_last(n.builder, y))


def _quotient(channels: Dim, of: Dim) -> int:
    found = simplified(as_expr(channels) // of)
    if not isinstance(found, int) or found < 1:
        raise UserError(f"an image of {channels} channels has weights for {of}")
    return found


@converts("CONV_3D")
def conv_3d(n: Node) -> Value:
    """Images N×D×H×W×C by weights D×H×W×I×O."""
    x, weight = n[0], n[1]
    window = read_window(n, x.shape[1:4], weight.shape[:3], dilated=True)
    groups = _quotient(x.shape[4], weight.shape[3])
    return _convolved(n, Factors(n, (4, 3, 0, 1, 2), 4), window, groups)


# ---- transposed ---------------------------------------------------------------------------------


@converts("TRANSPOSE_CONV")
def transpose_conv(n: Node) -> Value:
    """The shape of the result, weights O×H×W×I, the image and a bias."""
    x, weight = n[2], n[1]
    wanted = n.dims(0, 4)
    window, extra = _cut(n, x.shape[1:3], weight.shape[1:3], wanted[1:3])
    weights = Factors(n, (3, 0, 1, 2), 0)
    image = channels_first(n.builder, x)
    if is_integer(n, 2):
        return channels_last(n.builder, quantized_conv_transpose(n, image, weights, window, extra))
    y = n.builder.conv_transpose(
        image,
        real_weights(n, weights),
        n.get(3),
        strides=window.strides,
        pads=window.pads,
        output_pads=extra,
    )
    return activated(n, channels_last(n.builder, y))


@converts("CONV_3D_TRANSPOSE")
def conv_3d_transpose(n: Node) -> Value:
    """The shape of the result, weights D×H×W×O×I, the image and a bias."""
    x, weight = n[2], n[1]
    window, extra = _cut(n, x.shape[1:4], weight.shape[:3], n.dims(0, 5)[1:4])
    y = n.builder.conv_transpose(
        channels_first(n.builder, x),
        n.builder.transpose(weight, axes=(4, 3, 0, 1, 2)),
        n.get(3),
        strides=window.strides,
        pads=window.pads,
        output_pads=extra,
    )
    return activated(n, channels_last(n.builder, y))


def _cut(
    n: Node, extents: Sequence[Dim], kernel: Sequence[Dim], wanted: Sequence[Dim]
) -> tuple[WindowAttributes, list[Dim]]:
    """What is cut off so that a result has the extents that are wanted, and what it lacks.

    In front it is the padding that a convolution over the result would have.
    """
    over = read_window(n, [as_expr(w) for w in wanted], kernel, dilated=False)
    rank = len(over.strides)
    before = over.pads[:rank]
    after: list[Dim] = []
    extra: list[Dim] = []
    for e, k, w, s, b in zip(extents, kernel, wanted, over.strides, before, strict=True):
        reached = (as_expr(e) - 1) * s + k - b
        after.append(simplified(maximum(reached - w, 0)))
        extra.append(simplified(maximum(as_expr(w) - reached, 0)))
    return over._replace(pads=(*before, *after)), extra
