"""Convolutions, pooling, normalisation and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.common.padding import (
    dim_number,
    same_padding,
    simplified,
    split_padding,
)
from tilewright.frontends.tensorflow.images import (
    as_before,
    channels_first,
    spatial,
    window_of,
)
from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.ops.linear import fused
from tilewright.frontends.tensorflow.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr
from tilewright.support.errors import UserError


def _require_weights(x: Value, weight: Value) -> int:
    if weight.ndim != x.ndim:
        raise UserError(f"the image {x} and the weights {weight} differ in rank")
    return x.ndim - 2


@converts("Conv2D", "Conv3D")
def conv(n: Node) -> Value:
    return as_before(n, _convolved(n))


def _convolved(n: Node) -> Value:
    x, weight, b = n[0], n[1], n.builder
    rank = _require_weights(x, weight)
    image = channels_first(n, x)
    window = window_of(n, image.shape[2:], [dim_number(d) for d in weight.shape[:rank]])
    # spatial×I×O as O×I×spatial.
    transposed = b.transpose(weight, axes=[rank + 1, rank, *range(rank)])
    channels, own = dim_number(image.shape[1]), dim_number(weight.shape[rank])
    groups = channels // own if isinstance(channels, int) and isinstance(own, int) and own else 1
    return b.conv(
        image,
        transposed,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=max(groups, 1),
    )


@converts("_FusedConv2D")
def fused_conv(n: Node) -> Value:
    return fused(n, as_before(n, _convolved(n)), n[2])


@converts("DepthwiseConv2dNative")
def depthwise_conv(n: Node) -> Value:
    x, weight, b = n[0], n[1], n.builder
    rank = _require_weights(x, weight)
    image = channels_first(n, x)
    kernel = [dim_number(d) for d in weight.shape[:rank]]
    window = window_of(n, image.shape[2:], kernel)
    channels, each = weight.shape[rank:]
    flat = b.reshape(weight, shape=[*weight.shape[:rank], 1, channels * each])
    groups = dim_number(channels)
    if not isinstance(groups, int):
        raise UserError(f"{n.name} has weights of {weight}")
    result = b.conv(
        image,
        b.transpose(flat, axes=[rank + 1, rank, *range(rank)]),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=groups,
    )
    return as_before(n, result)


@converts("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def conv_transpose(n: Node) -> Value:
    """The image from which a convolution would compute the last operand."""
    weight, x, b = n[1], n[2], n.builder
    rank = _require_weights(x, weight)
    image = channels_first(n, x)
    sizes = n.dims(0)
    # Sizes may come without the batch and channels.
    if len(sizes) == x.ndim:
        sizes = sizes[2:] if n.is_channels_first else sizes[1:-1]
    if len(sizes) != rank:
        raise UserError(f"the size of the image is {sizes}")
    kernel = [dim_number(d) for d in weight.shape[:rank]]
    wanted = [as_expr(s) for s in sizes]
    window = window_of(n, wanted, kernel)
    extra: list[Dim] = []
    for k in range(rank):
        reach = (as_expr(kernel[k]) - 1) * window.dilations[k] + 1
        made = (image.shape[2 + k] - 1) * window.strides[k] + reach
        extra.append(simplified(wanted[k] - made + window.pads[k] + window.pads[rank + k]))
    result = b.conv_transpose(
        image,
        # spatial×O×I as I×O×spatial.
        b.transpose(weight, axes=[rank + 1, rank, *range(rank)]),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        output_pads=extra,
    )
    return as_before(n, result)


# ---- pooling ------------------------------------------------------------------------------------


def _pooled(n: Node, x: Value, op: str, kernel: Sequence[int], **attrs: Any) -> Any:
    image = channels_first(n, x)
    own = spatial(n, kernel, image.ndim - 2)
    window = window_of(n, image.shape[2:], own)
    return n.builder.emit(op, image, kernel=own, strides=window.strides, pads=window.pads, **attrs)


@converts("MaxPool", "MaxPool3D")
def max_pool(n: Node) -> Value:
    return as_before(n, _pooled(n, n[0], "max_pool", n.integers("ksize")))


@converts("MaxPoolV2")
def max_pool_by_operands(n: Node) -> Value:
    kernel, strides = n.numbers(1), n.numbers(2)
    image = channels_first(n, n[0])
    rank = image.ndim - 2
    own, steps = spatial(n, kernel, rank), spatial(n, strides, rank)
    pads: tuple[Dim, ...] = (0,) * (2 * rank)
    if n.text("padding") == "SAME":
        axes = zip(image.shape[2:], own, steps, [1] * rank, strict=True)
        pads = split_padding([same_padding(*axis) for axis in axes])
    return as_before(n, n.builder.max_pool(image, kernel=own, strides=steps, pads=pads))


@converts("AvgPool", "AvgPool3D")
def avg_pool(n: Node) -> Value:
    return as_before(n, _pooled(n, n[0], "avg_pool", n.integers("ksize")))


# ---- normalisation ------------------------------------------------------------------------------


@converts("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(n: Node) -> list[Value]:
    if n.flag("is_training", True):
        raise UserError(
            f"{n.name} normalises by the moments of its batch",
            remedy="export the model for inference",
        )
    x, b = n[0], n.builder
    parameters = [n[k] for k in (1, 2, 3, 4)]
    image = channels_first(n, x)
    normal = b.batch_norm(image, *parameters, epsilon=n.real("epsilon", 1e-4))
    mean, variance = n[3], n[4]
    return [as_before(n, normal), mean, variance, mean, variance, variance]


@converts("LRN")
def lrn(n: Node) -> Value:
    radius = n.integer("depth_radius", 5)
    size = 2 * radius + 1
    image = channels_first(n, n[0])
    normal = n.builder.lrn(
        image,
        size=size,
        # TensorFlow does not divide the sum by the size of the window.
        alpha=n.real("alpha", 1.0) * size,
        beta=n.real("beta", 0.5),
        bias=n.real("bias", 1.0),
    )
    return as_before(n, normal)


# ---- blocks of pixels ---------------------------------------------------------------------------


@converts("DepthToSpace", "SpaceToDepth")
def depth_to_space(n: Node) -> Value:
    image, block, b = channels_first(n, n[0]), n.integer("block_size"), n.builder
    if n.op == "DepthToSpace":
        return as_before(n, b.depth_to_space(image, block=block, mode="DCR"))
    return as_before(n, b.space_to_depth(image, block=block))


@converts("SpaceToBatchND", "SpaceToBatch")
def space_to_batch(n: Node) -> Value:
    """Pixels of a block become images of the batch, after padding."""
    x, b = n[0], n.builder
    if n.op == "SpaceToBatch":
        blocks, pairs = [n.integer("block_size")] * 2, n.dims(1)
    else:
        blocks, pairs = n.numbers(1), n.dims(2)
    rank = len(blocks)
    rest = [0] * (x.ndim - 1 - rank)
    padded = b.pad(x, before=[0, *pairs[::2], *rest], after=[0, *pairs[1::2], *rest])
    split: list[Dim] = [x.shape[0]]
    for extent, block in zip(padded.shape[1 : 1 + rank], blocks, strict=True):
        split += [extent // block, block]
    split += x.shape[1 + rank :]
    order = [2 * k + 2 for k in range(rank)] + [0] + [2 * k + 1 for k in range(rank)]
    order += range(1 + 2 * rank, len(split))
    transposed = b.transpose(b.reshape(padded, shape=split), axes=order)
    count: Dim = x.shape[0]
    for block in blocks:
        count = count * block
    return b.reshape(transposed, shape=[count, *transposed.shape[rank + 1 :]])


@converts("BatchToSpaceND", "BatchToSpace")
def batch_to_space(n: Node) -> Value:
    """The inverse: images of the batch become pixels of a block, and crops are cut off."""
    x, b = n[0], n.builder
    if n.op == "BatchToSpace":
        blocks, pairs = [n.integer("block_size")] * 2, n.dims(1)
    else:
        blocks, pairs = n.numbers(1), n.dims(2)
    rank = len(blocks)
    count: Dim = x.shape[0]
    for block in blocks:
        count = count // block
    parted = b.reshape(x, shape=[*blocks, count, *x.shape[1:]])
    order = [rank]
    for k in range(rank):
        order += [rank + 1 + k, k]
    order += range(2 * rank + 1, parted.ndim)
    extents = [e * block for e, block in zip(x.shape[1 : 1 + rank], blocks, strict=True)]
    whole = b.reshape(
        b.transpose(parted, axes=order), shape=[count, *extents, *x.shape[1 + rank :]]
    )
    ends = [e - after for e, after in zip(extents, pairs[1::2], strict=True)]
    return b.slice(whole, starts=pairs[::2], ends=ends, axes=list(range(1, 1 + rank)))


# ---- resizing -----------------------------------------------------------------------------------


@converts("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea")
def resize(n: Node) -> Value:
    x, b = n[0], n.builder
    if n.op == "ResizeArea":
        raise UserError(f"{n.name} resizes by areas", remedy="resize bilinearly with antialias")
    aligned, centred = n.flag("align_corners"), n.flag("half_pixel_centers")
    image = b.transpose(x, axes=[0, 3, 1, 2])
    if n.op != "ResizeNearestNeighbor" and not image.dtype.is_float:
        image = b.cast(image, dtype="float32")
    mode = {"ResizeBilinear": "linear", "ResizeBicubic": "cubic"}.get(n.op, "nearest")
    coordinates = "align_corners" if aligned else "half_pixel" if centred else "asymmetric"
    nearest = "round_prefer_ceil" if aligned else "floor"
    if mode == "nearest" and centred:
        coordinates, nearest = "half_pixel", "round_prefer_ceil"
    result = b.resize(
        image,
        sizes=n.dims(1),
        axes=[2, 3],
        mode=mode,
        coordinates=coordinates,
        nearest=nearest,
        # With half-pixel centres, the cubic is Keys', without weights outside.
        cubic_a=-0.5 if centred else -0.75,
        exclude_outside=centred and mode == "cubic",
    )
    return b.transpose(result, axes=[0, 2, 3, 1])
