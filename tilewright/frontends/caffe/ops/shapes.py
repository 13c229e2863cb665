"""Blobs joined, split and reshaped; sums along axes."""

from __future__ import annotations

import itertools
from typing import Any

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.table import converts
from tilewright.graph import Value, product
from tilewright.support.errors import UserError


@converts("Concat")
def concat(n: Layer) -> Value:
    param = n.param("concat_param")
    axis = n.axis(param.integer("axis", param.integer("concat_dim", 1)), n[0].ndim)
    if len(n.inputs) == 1:
        return n[0]
    return n.builder.concat(*n.inputs, axis=axis)


@converts("Slice")
def slice_(n: Layer) -> list[Value]:
    """Parts that end at the given points, or parts of equal size."""
    param, x = n.param("slice_param"), n[0]
    axis = n.axis(param.integer("axis", param.integer("slice_dim", 1)), x.ndim)
    extent, points = n.extent(x, axis), param.integers("slice_point")
    if n.outputs == 1:
        return [x]
    if not points:
        if not n.outputs or extent % n.outputs:
            raise UserError(f"{extent} elements in {n.outputs} equal parts")
        points = [extent // n.outputs * k for k in range(1, n.outputs)]
    bounds = [0, *points, extent]
    sizes = [end - begin for begin, end in itertools.pairwise(bounds)]
    if len(sizes) != n.outputs or min(sizes) < 0:
        raise UserError(f"{extent} elements are cut at {points} for {n.outputs} tops")
    return list(n.builder.split(x, sizes=sizes, axis=axis))


@converts("Flatten")
def flatten(n: Layer) -> Value:
    param, x = n.param("flatten_param"), n[0]
    first = n.axis(param.integer("axis", 1), x.ndim)
    last = n.axis(param.integer("end_axis", -1), x.ndim)
    middle = product(x.shape[first : last + 1])
    return n.builder.reshape(x, shape=[*x.shape[:first], middle, *x.shape[last + 1 :]])


@converts("Reshape")
def reshape(n: Layer) -> Value:
    """0 keeps an extent, -1 is the rest; axes before and after stay as they are."""
    param, x = n.param("reshape_param"), n[0]
    first = n.axis(param.integer("axis", 0), x.ndim, end=True)
    count = param.integer("num_axes", -1)
    end = x.ndim if count == -1 else first + count
    wanted = param.message("shape").integers("dim")
    if not first <= end <= x.ndim or wanted.count(-1) > 1 or any(w < -1 for w in wanted):
        raise UserError(f"{x} in the shape {wanted} from axis {first} to {end}")
    old = x.shape[first:end]
    new: list[Any] = []
    for k, size in enumerate(wanted):
        if size == 0 and k >= len(old):
            raise UserError(f"{x} has no extent that dimension {k} could keep")
        new.append(old[k] if size == 0 else size)
    return n.builder.reshape(x, shape=[*x.shape[:first], *new, *x.shape[end:]])


@converts("Permute")
def permute(n: Layer) -> Value:
    order = n.param("permute_param").integers("order")
    rest = [k for k in range(n[0].ndim) if k not in order]
    return n.builder.transpose(n[0], axes=[*order, *rest])


@converts("ShuffleChannel")
def shuffle(n: Layer) -> Value:
    b, x = n.builder, n[0]
    groups, channels = n.param("shuffle_channel_param").integer("group", 1), n.extent(x, 1)
    if groups < 1 or channels % groups:
        raise UserError(f"{groups} groups of {channels} channels")
    split = b.reshape(x, shape=[x.shape[0], groups, channels // groups, *x.shape[2:]])
    swapped = b.transpose(split, axes=[0, 2, 1, *range(3, split.ndim)])
    return b.reshape(swapped, shape=x.shape)


@converts("Crop")
def crop(n: Layer) -> Value:
    """Cropped, from an axis on, to the size of another blob, at an offset."""
    param, x, like = n.param("crop_param"), n[0], n[1]
    axis = n.axis(param.integer("axis", 2), x.ndim)
    axes, offsets = list(range(axis, x.ndim)), param.integers("offset")
    if like.ndim != x.ndim or len(offsets) not in (0, 1, len(axes)):
        raise UserError(f"{x} by {like} with the offsets {offsets}")
    starts = (offsets or [0]) * len(axes) if len(offsets) < 2 else offsets
    ends = [s + n.extent(like, k) for s, k in zip(starts, axes, strict=True)]
    if any(s < 0 or e > n.extent(x, k) for s, e, k in zip(starts, ends, axes, strict=True)):
        raise UserError(f"{starts} to {ends} lies outside {x}")
    return n.builder.slice(x, starts=starts, ends=ends, axes=axes)


@converts("Tile")
def tile(n: Layer) -> Value:
    param, x = n.param("tile_param"), n[0]
    axis, count = n.axis(param.integer("axis", 1), x.ndim), param.integer("tiles", 1)
    if not 1 <= count <= 1 << 16:
        raise UserError(f"a blob is repeated {count} times")
    return n.builder.tile(x, repeats=[count if k == axis else 1 for k in range(x.ndim)])


@converts("Reduction")
def reduction(n: Layer) -> Value:
    """All axes from a given one on are reduced to one number."""
    param, b, x = n.param("reduction_param"), n.builder, n[0]
    axes = list(range(n.axis(param.integer("axis", 0), x.ndim), x.ndim))
    kind = param.text("operation", "SUM")
    ops = {"SUM": "sum", "ASUM": "l1", "SUMSQ": "sum_square", "MEAN": "mean"}
    names = dict(zip("1234", ops.values(), strict=True)) | ops
    if kind not in names:
        raise UserError(f"the operation {kind[:40]} is not known", remedy=f"use {', '.join(ops)}")
    made = b.emit(names[kind], x, axes=axes)
    factor = param.real("coeff", 1.0)
    return made if factor == 1.0 else b.mul(made, factor)


@converts("ArgMax")
def arg_max(n: Layer) -> Value:
    """The positions of the greatest elements as floats, along an axis or in a whole image; with
    `out_max_val` their values: instead along an axis, after the positions otherwise."""
    param, b, x = n.param("argmax_param"), n.builder, n[0]
    count, wants_values = param.integer("top_k", 1), param.flag("out_max_val")
    if "axis" in param:
        axis = n.axis(param.integer("axis", 1), x.ndim)
        values, places = b.top_k(x, k=count, axis=axis)
        return values if wants_values else b.cast(places, dtype="float32")
    rows = b.reshape(x, shape=[x.shape[0], product(x.shape[1:])])
    values, places = b.top_k(rows, k=count, axis=1)
    values, places = (b.unsqueeze(v, axes=[1]) for v in (values, b.cast(places, dtype="float32")))
    return b.concat(places, values, axis=1) if wants_values else places
