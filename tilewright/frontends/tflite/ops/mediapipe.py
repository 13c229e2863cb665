"""Custom operators of MediaPipe's models."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from tilewright.frontends.common.images import channels_first, channels_last
from tilewright.frontends.common.padding import same_padding, split_padding
from tilewright.frontends.tflite.flexbuffer import read_map
from tilewright.frontends.tflite.load import CUSTOM
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value
from tilewright.ir import Expr, as_expr
from tilewright.support.errors import UserError

_SAME = 1


def _integers(n: Node, count: int) -> tuple[int, ...]:
    """Options that are stored as a list of integers."""
    if len(n.operator.custom) < 4 * count:
        raise UserError(f"the options of {n.op} are too short")
    return struct.unpack_from(f"<{count}i", n.operator.custom)


@converts("Convolution2DTransposeBias", domain=CUSTOM)
def convolution_transpose_bias(n: Node) -> Value:
    """An image, weights O×H×W×I and a bias."""
    padding, stride_w, stride_h = _integers(n, 3)
    x, weight, b = n[0], n[1], n.builder
    strides = (stride_h, stride_w)
    totals = [0, 0]
    if padding == _SAME:
        n.require_shape(0)
        sizes = zip(
            x.tensor.static_shape[1:3], weight.tensor.static_shape[1:3], strides, strict=True
        )
        totals = [max(0, k - (e - 1) % s - 1) for e, k, s in sizes]
    y = b.conv_transpose(
        channels_first(n.builder, x),
        b.transpose(weight, axes=(3, 0, 1, 2)),
        n.get(2),
        strides=strides,
        pads=split_padding(totals),
    )
    return channels_last(n.builder, y)


# ---- pooling that remembers ---------------------------------------------------------------------


class _Pool(NamedTuple):
    kernel: tuple[int, int]
    strides: tuple[int, int]
    is_same: bool

    def before(self, extents: Any) -> list[Any]:
        """The padding in front of each spatial axis."""
        if not self.is_same:
            return [0, 0]
        sizes = zip(extents, self.kernel, self.strides, strict=True)
        return list(split_padding([same_padding(e, k, s, 1) for e, k, s in sizes])[:2])


def _pool(n: Node) -> _Pool:
    padding, stride_w, stride_h, width, height = _integers(n, 5)
    if min(stride_w, stride_h, width, height) < 1:
        raise UserError(f"{n.op} has a window of {height}×{width}")
    return _Pool((height, width), (stride_h, stride_w), padding == _SAME)


def _origins(n: Node, count: Expr, stride: int, before: Any, axis: int) -> Value:
    """Where each window begins along an axis of N×C×H×W."""
    b = n.builder
    steps = b.ramp(n.constant(0, "int64"), n.constant(stride, "int64"), size=count)
    moved = b.sub(steps, b.dims(elements=[as_expr(before)], shape=[], dtype="int64"))
    return b.reshape(moved, shape=[-1, 1] if axis == 0 else [-1])


@converts("MaxPoolingWithArgmax2D", domain=CUSTOM)
def max_pooling_with_argmax(n: Node) -> list[Value]:
    """The greatest elements, and their positions in their windows as floats."""
    pool, b = _pool(n), n.builder
    x = channels_first(n.builder, n[0])
    height, width = x.shape[2:]
    totals = [0, 0]
    if pool.is_same:
        sizes = zip(x.shape[2:], pool.kernel, pool.strides, strict=True)
        totals = [same_padding(e, k, s, 1) for e, k, s in sizes]
    pads = split_padding(totals)
    how: dict[str, Any] = {"kernel": pool.kernel, "strides": pool.strides, "pads": pads}
    y, places = b.max_pool(x, return_indices=True, **how)
    sizes = b.dims(elements=[width, height], shape=[2], dtype="int64")
    columns = b.mod(places, b.index(sizes, 0))
    rows = b.mod(b.floor_div(places, b.index(sizes, 0)), b.index(sizes, 1))
    left = b.sub(columns, _origins(n, y.shape[3], pool.strides[1], pads[1], 1))
    top = b.sub(rows, _origins(n, y.shape[2], pool.strides[0], pads[0], 0))
    inside = b.add(b.mul(top, n.constant(pool.kernel[1], "int64")), left)
    real = b.add(b.cast(inside, dtype="float32"), n.constant(np.float32(0.1)))
    return [channels_last(n.builder, y), channels_last(n.builder, real)]


@converts("MaxUnpooling2D", domain=CUSTOM)
def max_unpooling(n: Node) -> Value:
    """Elements at the positions in their windows that the pooling gave."""
    pool, b = _pool(n), n.builder
    x, inside = channels_first(n.builder, n[0]), channels_first(n.builder, n[1])
    count, channels, height, width = x.shape
    tall, wide = height * pool.kernel[0], width * pool.kernel[1]
    before = pool.before([tall, wide])
    at = b.cast(inside, dtype="int64")
    across = n.constant(pool.kernel[1], "int64")
    rows = b.add(b.floor_div(at, across), _origins(n, height, pool.strides[0], before[0], 0))
    columns = b.add(b.mod(at, across), _origins(n, width, pool.strides[1], before[1], 1))
    size = b.dims(elements=[tall, wide], shape=[2], dtype="int64")
    place = b.add(b.mul(rows, b.index(size, 1)), columns)
    area = b.mul(b.index(size, 0), b.index(size, 1))
    images = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=count * channels)
    offsets = b.mul(b.reshape(images, shape=[count, channels, 1, 1]), area)
    shape = [count, channels, tall, wide]
    return channels_last(n.builder, b.max_unpool(x, b.add(place, offsets), shape=shape))


# ---- landmarks ----------------------------------------------------------------------------------


@converts("Landmarks2TransformMatrix", domain=CUSTOM, since=2)
def landmarks_to_matrix(n: Node) -> Value:
    """The matrix that maps a crop around landmarks, rotated upright, onto an image."""
    how, b = read_map(n.operator.custom), n.builder
    points = b.reshape(n[0], shape=[-1, 3])
    ends = b.gather(points, n.constant([how["left_rotation_idx"], how["right_rotation_idx"]]))
    apart = b.sub(b.index(ends, 1), b.index(ends, 0))
    angle = b.sub(
        n.constant(np.float32(how["target_rotation_radians"])),
        b.atan2(b.index(apart, 1), b.index(apart, 0)),
    )
    cos, sin = b.cos(angle), b.sin(angle)
    chosen = b.gather(points, n.constant(np.asarray(how["subset_idxs"], np.int64).ravel()))
    x, y = b.index(chosen, (slice(None), 0)), b.index(chosen, (slice(None), 1))
    turned = [b.sub(cos * x, sin * y), b.add(sin * x, cos * y)]
    high, low = ([b.emit(e, v) for v in turned] for e in ("max", "min"))
    half = n.constant(np.float32(0.5))
    middle = [b.mul(b.add(h, w), half) for h, w in zip(high, low, strict=True)]
    center = [cos * middle[0] + sin * middle[1], cos * middle[1] - sin * middle[0]]
    width, height = how["output_width"], how["output_height"]
    wide = b.sub(high[0], low[0]) * np.float32(how["scale_x"] / width)
    tall = b.sub(high[1], low[1]) * np.float32(how["scale_y"] / height)
    rows = [(cos * wide, sin * tall), (b.neg(sin * wide), cos * tall)]
    shift = [n.constant(np.float32(-width / 2)), n.constant(np.float32(-height / 2))]
    zero = n.constant(np.float32(0))
    elements = [
        e
        for (u, v), c in zip(rows, center, strict=True)
        for e in (u, v, zero, c + u * shift[0] + v * shift[1])
    ]
    top = b.concat(*(b.reshape(e, shape=[1]) for e in elements), axis=0)
    rest = n.constant(np.eye(4, dtype=np.float32)[2:].ravel())
    return b.reshape(b.concat(top, rest, axis=0), shape=[1, 4, 4])


def _transformed(n: Node, matrix: Value, x: Value, y: Value) -> list[Value]:
    """Points by the first two rows of a matrix."""
    b = n.builder
    m = b.reshape(matrix, shape=[4, 4])
    return [b.index(m, (r, 0)) * x + b.index(m, (r, 1)) * y + b.index(m, (r, 3)) for r in range(2)]


@converts("TransformLandmarks", domain=CUSTOM, since=2)
def transform_landmarks(n: Node) -> Value:
    """Points moved by a matrix; a third coordinate stays as it is."""
    b, points = n.builder, n[0]
    x, y = b.index(points, (..., slice(0, 1))), b.index(points, (..., slice(1, 2)))
    moved = _transformed(n, n[1], x, y)
    rest = [b.index(points, (..., slice(2, None)))] if not n.is_equal(points.shape[-1], 2) else []
    return b.concat(*moved, *rest, axis=points.ndim - 1)


@converts("TransformTensorBilinear", domain=CUSTOM, since=2)
def transform_tensor(n: Node) -> Value:
    """The part of an image that a matrix maps the result onto; zero beyond the image."""
    how, b = read_map(n.operator.custom), n.builder
    image = channels_first(n.builder, n[0])
    height, width = image.shape[2:]
    grid = np.indices((how["output_height"], how["output_width"])).astype(np.float32) + 0.5
    x, y = _transformed(n, n[1], n.constant(grid[1]), n.constant(grid[0]))
    half = n.constant(np.float32(0.5))
    places = [b.sub(y, half), b.sub(x, half)]
    ends = b.cast(
        b.dims(elements=[height - 1, width - 1], shape=[2], dtype="int64"), dtype="float32"
    )
    zero = n.constant(np.float32(0))
    inside = [
        b.logical_and(b.greater_equal(p, zero), b.less_equal(p, b.index(ends, k)))
        for k, p in enumerate(places)
    ]
    at = b.concat(*(b.reshape(p, shape=[1, *p.shape, 1]) for p in places), axis=3)
    sampled = b.sample_at(image, at, mode="linear", padding="border", align_corners=True)
    kept = b.where(b.logical_and(*inside), sampled, zero)
    return channels_last(n.builder, kept)
