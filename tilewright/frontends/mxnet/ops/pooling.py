"""Pooling, and images in other sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontends.common.images import SymmetricWindow
from tilewright.frontends.mxnet.node import Node
from tilewright.frontends.mxnet.ops.convolution import image_rank, read_window
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("Pooling", "Pooling_v1")
def pooling(n: Node) -> Value:
    b, x, kind = n.builder, n[0], n.text("pool_type", "max")
    rank = image_rank(n, x)
    if kind not in ("max", "avg", "sum", "lp"):
        raise UserError(f"the pooling {kind[:40]} is not known")
    if n.flag("global_pool"):
        return _global(n, x, kind)
    window = read_window(n, rank)
    if not window.kernel:
        raise UserError("the attribute kernel is missing")
    convention = n.text("pooling_convention", "valid")
    behind = window.pads
    if convention == "same":
        behind = [_behind(n, x, k, window) for k in range(rank)]
    elif convention not in ("valid", "full"):
        raise UserError(f"the pooling_convention {convention[:40]} is not known")
    attrs: dict[str, Any] = {
        "kernel": window.kernel,
        "strides": window.strides,
        "pads": [*window.pads, *behind],
        "ceil_mode": convention == "full",
    }
    if kind == "max":
        return b.max_pool(x, **attrs)
    if kind == "lp":
        return b.lp_pool(x, p=n.integer("p_value"), **attrs)
    if kind == "avg":
        return b.avg_pool(x, **attrs, count_include_pad=n.flag("count_include_pad", True))
    if convention == "full":
        raise UserError("sums over windows that stick out are not supported")
    means = b.avg_pool(x, **attrs, count_include_pad=True)
    return b.mul(means, n.scalar(math.prod(window.kernel), means))


def _behind(n: Node, x: Value, axis: int, window: SymmetricWindow) -> int:
    """Padding after an axis, so that there is a window for each step inside the image."""
    extent, pad, stride = n.extent(x, axis + 2), window.pads[axis], window.strides[axis]
    places = -(-(extent + 2 * pad) // stride)
    return max((places - 1) * stride + window.kernel[axis] - extent - pad, 0)


def _global(n: Node, x: Value, kind: str) -> Value:
    b = n.builder
    if kind == "max":
        return b.global_max_pool(x)
    if kind == "avg":
        return b.global_avg_pool(x)
    if kind == "lp":
        return b.global_lp_pool(x, p=n.integer("p_value"))
    return b.sum(x, axes=list(range(2, x.ndim)), keepdims=True)


@converts("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling(n: Node) -> Value:
    """Means over parts of the image that are as equal as possible."""
    b, x = n.builder, n[0]
    sizes: list[int] = n.integers("output_size", None) or [1]
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    extents = [n.extent(x, 2), n.extent(x, 3)]
    if len(sizes) != 2 or any(not 1 <= s <= 1 << 12 for s in sizes):
        raise UserError(f"the output_size is {sizes}")
    rows, columns = (_shares(e, s) for e, s in zip(extents, sizes, strict=True))
    return b.matmul(b.matmul(rows, x), np.ascontiguousarray(columns.T))


def _shares(extent: int, size: int) -> Any:
    """A matrix that computes the mean of the elements of each part."""
    made = np.zeros((size, extent), np.float32)
    for k in range(size):
        first, end = k * extent // size, -(-(k + 1) * extent // size)
        made[k, first:end] = 1 / (end - first)
    return made


@converts("UpSampling")
def upsampling(n: Node) -> Value:
    b, x, scale = n.builder, n[0], n.integer("scale")
    if not 1 <= scale <= 1 << 10:
        raise UserError(f"an image is made {scale} times larger")
    if n.text("sample_type", "nearest") == "bilinear":
        pad = scale // 2
        return b.conv_transpose(
            x,
            n[1],
            strides=[scale] * 2,
            pads=[pad] * 4,
            groups=n.extent(x, 1),
        )
    if len(n) > 1:
        raise UserError("UpSampling of several images is not supported")
    return _nearest(n, x, [scale, scale])


def _nearest(n: Node, x: Value, scales: list[int]) -> Value:
    return n.builder.resize(
        x,
        scales=[1.0, 1.0, *map(float, scales)],
        mode="nearest",
        coordinates="asymmetric",
        nearest="floor",
    )


@converts("_contrib_BilinearResize2D")
def bilinear_resize(n: Node) -> Value:
    b, x, mode = n.builder, n[0], n.text("mode", "size")
    extents = [n.extent(x, 2), n.extent(x, 3)]
    if mode == "like":
        sizes = [n.extent(n[1], 2), n.extent(n[1], 3)]
    elif mode == "size" and "scale_height" not in n:
        sizes = [n.integer("height", 1), n.integer("width", 1)]
    elif mode == "size":
        scales = [n.real("scale_height"), n.real("scale_width")]
        sizes = [int(e * s) for e, s in zip(extents, scales, strict=True)]
    else:
        raise UserError(f"the mode {mode[:40]} is not supported", remedy="use size or like")
    if any(not 1 <= s <= 1 << 20 for s in sizes):
        raise UserError(f"an image of {sizes}")
    coordinates = "align_corners" if n.flag("align_corners", True) else "half_pixel"
    return b.resize(x, sizes=[*x.shape[:2], *sizes], mode="linear", coordinates=coordinates)


@converts("ROIPooling")
def roi_pooling(n: Node) -> Value:
    size = n.integers("pooled_size")
    return n.builder.max_roi_pool(n[0], n[1], size=size, spatial_scale=n.real("spatial_scale"))


@converts("_contrib_ROIAlign")
def roi_align(n: Node) -> Value:
    b, x, rois = n.builder, n[0], n[1]
    batches, boxes = b.split(rois, sizes=[1, 4], axis=1)
    if n.flag("position_sensitive"):
        raise UserError("position_sensitive is not supported")
    return b.roi_align(
        x,
        boxes,
        b.cast(b.squeeze(batches, axes=[1]), dtype="int64"),
        size=n.integers("pooled_size"),
        sampling_ratio=max(n.integer("sample_ratio", -1), 0),
        spatial_scale=n.real("spatial_scale"),
        half_pixel=n.flag("aligned"),
    )
