"""Convolutions: plain, depthwise, separable, transposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.keras.activations import activated
from tilewright.frontends.keras.images import as_before, channels_first, window_of
from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.table import converts
from tilewright.graph import Array, Dim, Value
from tilewright.support.errors import UserError


def _rank(n: Layer) -> int:
    """1D, 2D or 3D, by the name of the class."""
    return int(n.kind.removesuffix("Transpose")[-2])


def _rows(n: Layer, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return n.config.integers("strides", rank, 1), n.config.integers("dilation_rate", rank, 1)


def _oi(array: Array) -> Array:
    """spatial×I×O as O×I×spatial."""
    rank = array.ndim - 2
    return np.transpose(array, [rank + 1, rank, *range(rank)])


def _require_kernel(n: Layer, kernel: Array, rank: int) -> None:
    if kernel.ndim != rank + 2:
        raise UserError(f"{n.spec.text} has a kernel of the shape {list(kernel.shape)}")


def _finished(n: Layer, result: Value) -> Value:
    return activated(n, as_before(n, result), n.config.raw("activation"))


@converts("Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D")
def conv(n: Layer) -> Value:
    rank = _rank(n)
    kernel, *bias = n.weights("kernel", "bias" if n.config.flag("use_bias", True) else None)
    _require_kernel(n, kernel, rank)
    return _finished(n, _convolved(n, kernel, bias, n.config.integer("groups", 1)))


def _convolved(n: Layer, kernel: Array, bias: Sequence[Array], groups: int) -> Value:
    rank = kernel.ndim - 2
    image = channels_first(n, n.computed(n[0]))
    window = window_of(n, image, kernel.shape[:rank], *_rows(n, rank))
    return n.builder.conv(
        image,
        n.weight(_oi(kernel)),
        n.weight(bias[0]) if bias else None,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=groups,
    )


@converts("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_conv(n: Layer) -> Value:
    rank, uses_bias = _rank(n), n.config.flag("use_bias", True)
    names = ("depthwise_kernel" if n.importer.is_old else "kernel", "bias" if uses_bias else None)
    kernel, *bias = n.weights(*names)
    _require_kernel(n, kernel, rank)
    return _finished(n, _convolved(n, _grouped(kernel), bias, kernel.shape[rank]))


def _grouped(kernel: Array) -> Array:
    """A depthwise kernel spatial×C×M as spatial×1×(C·M), one group for each channel."""
    *spatial, channels, each = kernel.shape
    return kernel.reshape(*spatial, 1, channels * each)


@converts("SeparableConv1D", "SeparableConv2D", "SeparableConvolution2D")
def separable_conv(n: Layer) -> Value:
    rank = 1 if "1D" in n.kind else 2
    uses_bias = n.config.flag("use_bias", True)
    depth, point, *bias = n.weights(
        "depthwise_kernel", "pointwise_kernel", "bias" if uses_bias else None
    )
    _require_kernel(n, depth, rank)
    _require_kernel(n, point, rank)
    middle = _convolved(n, _grouped(depth), (), depth.shape[rank])
    shift = n.weight(bias[0]) if bias else None
    return _finished(n, n.builder.conv(middle, n.weight(_oi(point)), shift))


@converts(
    *("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
    *("Deconvolution2D", "Convolution2DTranspose"),
)
def conv_transpose(n: Layer) -> Value:
    kernel, *bias = n.weights("kernel", "bias" if n.config.flag("use_bias", True) else None)
    rank = kernel.ndim - 2
    image = channels_first(n, n.computed(n[0]))
    _require_kernel(n, kernel, image.ndim - 2)
    strides, dilations = _rows(n, rank)
    extra = n.config.raw("output_padding")
    given = None if extra is None else n.config.integers("output_padding", rank)
    is_same = n.config.text("padding", "valid").lower() == "same"
    begins: list[Dim] = []
    ends: list[Dim] = []
    behind: list[Dim] = []
    for k in range(rank):
        reach = dilations[k] * (kernel.shape[k] - 1) + 1
        own = None if given is None else given[k]
        front, back, more = _cut(reach, strides[k], own, is_same)
        begins.append(front)
        ends.append(back)
        behind.append(more)
    # spatial×O×I as I×O×spatial.
    weight = n.weight(kernel, [rank + 1, rank, *range(rank)])
    result = n.builder.conv_transpose(
        image,
        weight,
        n.weight(bias[0]) if bias else None,
        strides=strides,
        pads=[*begins, *ends],
        dilations=dilations,
        output_pads=behind,
    )
    return _finished(n, result)


def _cut(
    reach: int, stride: int, output_padding: int | None, is_same: bool
) -> tuple[int, int, int]:
    """What is cut off before and after a transposed convolution, and what is added after.

    All windows reach (extent - 1) * stride + reach elements. `valid` keeps them, and at least
    extent * stride; `same` gives extent * stride of them; an output padding is counted from the
    smallest image of which the convolution makes `extent` pixels.
    """
    if not is_same:
        return 0, 0, max(stride - reach, 0) if output_padding is None else output_padding
    kept = stride if output_padding is None else reach % 2 + output_padding
    total = reach - kept
    front = max(total // 2, 0)
    behind = total - front
    return front, max(behind, 0), max(-behind, 0)
