"""Reshapes, splits and joins, copies; constants."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.frontends.mxnet.node import Node, as_dim, checked_axis
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value, product
from tilewright.support.errors import UserError

#: Larger constants are refused.
_MOST = 1 << 26


@converts("Reshape", "reshape")
def reshape(n: Node) -> Value:
    x = n[0]
    target: list[int] | None = n.integers("shape", None)
    if not target:
        # Before there were codes: zeros keep the batch, or are the rest.
        target = [-1 if t == 0 else t for t in n.integers("target_shape")]
        if n.flag("keep_highest"):
            target[0] = 0
    shape, reverse = list(x.shape), n.flag("reverse")
    if reverse:
        shape, target = shape[::-1], target[::-1]
    made = reshaped(shape, target)
    made = [as_dim(m) for m in (made[::-1] if reverse else made)]
    sizes = [m for m in made if isinstance(m, int)]
    if x.constant is not None and len(sizes) == len(made):
        # Gluon flattens the weights of recurrent layers, which must stay constants.
        return n.builder.constant(x.constant.reshape(sizes), x.dtype)
    return n.builder.reshape(x, shape=made)


def reshaped(shape: list[Any], target: list[int]) -> list[Any]:
    """A shape by MXNet's codes: 0 keeps an extent, -1 is the rest, -2 keeps all that follow,
    -3 joins two, -4 splits one into the two numbers after it."""
    made: list[Any] = []
    source, at = 0, 0

    def taken(count: int) -> list[Any]:
        nonlocal source
        if source + count > len(shape):
            raise UserError(f"the shape {target} for {len(shape)} dimensions")
        source += count
        return shape[source - count : source]

    while at < len(target):
        code = target[at]
        at += 1
        if code == 0:
            made += taken(1)
        elif code == -2:
            made += taken(len(shape) - source)
        elif code == -3:
            made.append(as_dim(product(taken(2))))
        elif code == -4:
            made += _split(taken(1)[0], target[at : at + 2])
            at += 2
        elif code < -4:
            raise UserError(f"the shape {target} has the code {code}")
        else:
            made.append(code)
            source = min(source + 1, len(shape))
    if sum(1 for m in made if isinstance(m, int) and m == -1) > 1:
        raise UserError(f"the shape {target} leaves more than one extent open")
    return made


def _split(extent: Any, parts: list[int]) -> list[Any]:
    if len(parts) != 2 or parts.count(-1) > 1 or any(p == 0 or p < -1 for p in parts):
        raise UserError(f"a dimension is split into {parts}")
    known = max(parts)
    rest = extent // known
    return [as_dim(rest) if p == -1 else p for p in parts]


@converts("reshape_like")
def reshape_like(n: Node) -> Value:
    if any(k in n for k in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")):
        raise UserError("reshape_like of some axes is not supported")
    return n.builder.reshape(n[0], shape=n[1].shape)


@converts("Flatten", "flatten")
def flatten(n: Node) -> Value:
    x = n[0]
    return n.builder.reshape(x, shape=[x.shape[0], as_dim(product(x.shape[1:]))])


@converts("transpose")
def transpose(n: Node) -> Value:
    axes = n.integers("axes", None) or list(range(n[0].ndim))[::-1]
    return n.builder.transpose(n[0], axes=[checked_axis(a, n[0].ndim) for a in axes])


@converts("SwapAxis", "swapaxes")
def swap_axes(n: Node) -> Value:
    order = list(range(n[0].ndim))
    one, other = (n.axis(k, 0, n[0].ndim) for k in ("dim1", "dim2"))
    order[one], order[other] = other, one
    return n.builder.transpose(n[0], axes=order)


@converts("expand_dims")
def expand_dims(n: Node) -> Value:
    return n.builder.unsqueeze(n[0], axes=[n.integer("axis")])


@converts("squeeze")
def squeeze(n: Node) -> Value:
    axes = n.integers("axis", None)
    return n.builder.squeeze(n[0], axes=axes)


@converts("depth_to_space")
def depth_to_space(n: Node) -> Value:
    return n.builder.depth_to_space(n[0], block=n.integer("block_size"))


@converts("space_to_depth")
def space_to_depth(n: Node) -> Value:
    return n.builder.space_to_depth(n[0], block=n.integer("block_size"))


# ---- parts and wholes ---------------------------------------------------------------------------


@converts("Concat", "concat")
def concat(n: Node) -> Value:
    axis = n.axis("dim", 1, n[0].ndim)
    return n[0] if len(n) == 1 else n.builder.concat(*n.all, axis=axis)


@converts("stack")
def stack(n: Node) -> Value:
    axis = n.axis("axis", 0, n[0].ndim + 1)
    return n.builder.concat(*(n.builder.unsqueeze(v, axes=[axis]) for v in n.all), axis=axis)


@converts("SliceChannel", "split")
def split(n: Node) -> list[Value]:
    x, count = n[0], n.integer("num_outputs")
    axis = n.axis("axis", 1, x.ndim)
    extent = n.extent(x, axis)
    if count < 1 or extent % count:
        raise UserError(f"{extent} elements in {count} equal parts")
    return _parts(n, [extent // count] * count, axis)


@converts("_split_v2")
def split_v2(n: Node) -> list[Value]:
    x, sections = n[0], n.integer("sections", 0)
    axis = n.axis("axis", 1, x.ndim)
    extent = n.extent(x, axis)
    if sections:
        if sections < 1 or extent % sections:
            raise UserError(f"{extent} elements in {sections} equal parts")
        return _parts(n, [extent // sections] * sections, axis)
    bounds = [*n.integers("indices", []), extent]
    # The first bound is the start of the first part.
    bounds = bounds if bounds[0] == 0 else [0, *bounds]
    sizes = [b - a for a, b in itertools.pairwise(bounds)]
    if min(sizes) < 0:
        raise UserError(f"{extent} elements are cut at {bounds}")
    return _parts(n, sizes, axis)


def _parts(n: Node, sizes: list[int], axis: int) -> list[Value]:
    b, x = n.builder, n[0]
    parts: Any = b.split(x, sizes=sizes, axis=axis) if len(sizes) > 1 else (x,)
    if not n.flag("squeeze_axis"):
        return list(parts)
    return [b.squeeze(p, axes=[axis]) for p in parts]


def _part(n: Node, x: Value, spans: dict[int, tuple[int | None, int | None, int]]) -> Value:
    """A part of a tensor as Python's slices take it, along some axes."""
    starts, ends, steps = list[int](), list[int](), list[int]()
    for axis, span in spans.items():
        extent = n.extent(x, axis)
        begin, end, step = slice(*span).indices(extent)
        starts.append(begin)
        # No index denotes the position before the first element.
        ends.append(-extent - 1 if end < 0 else end)
        steps.append(step)
    return n.builder.slice(x, starts=starts, ends=ends, axes=list(spans), steps=steps)


@converts("slice", "crop")
def slice_(n: Node) -> Value:
    begins, ends = n.optional_integers("begin"), n.optional_integers("end")
    steps = n.optional_integers("step") if "step" in n else []
    steps = steps or [None] * len(begins)
    if len(begins) != len(ends) or len(steps) != len(begins) or len(begins) > n[0].ndim:
        raise UserError(f"a slice from {begins} to {ends} of {n[0]}")
    if 0 in steps:
        raise UserError("a slice with steps of 0")
    spans = {k: (b, e, s or 1) for k, (b, e, s) in enumerate(zip(begins, ends, steps, strict=True))}
    return _part(n, n[0], spans)


@converts("slice_axis")
def slice_axis(n: Node) -> Value:
    axis = n.axis("axis", None, n[0].ndim)
    begin, end = n.integer("begin"), n.integer("end", None)
    if (begin, end) == (0, None):
        return n[0]
    return _part(n, n[0], {axis: (begin, end, 1)})


@converts("slice_like")
def slice_like(n: Node) -> Value:
    x, like = n[0], n[1]
    axes = n.integers("axes", None) or list(range(x.ndim))
    axes = [checked_axis(a, min(x.ndim, like.ndim)) for a in axes]
    return _part(n, x, {a: (0, n.extent(like, a), 1) for a in axes})


@converts("Crop")
def crop(n: Node) -> Value:
    """Height and width of another image, or given ones; from an offset, or the middle."""
    x = n[0]
    given = n.integers("h_w", [0, 0])
    sizes = [n.extent(n[1], 2), n.extent(n[1], 3)] if len(n) > 1 else given
    extents = [n.extent(x, 2), n.extent(x, 3)]
    offsets = n.integers("offset", [0, 0])
    if n.flag("center_crop"):
        offsets = [(e - s) // 2 for e, s in zip(extents, sizes, strict=True)]
    ends = [o + s for o, s in zip(offsets, sizes, strict=True)]
    if min(offsets) < 0 or any(e > f for e, f in zip(ends, extents, strict=True)):
        raise UserError(f"{offsets} to {ends} lies outside {x}")
    return n.builder.slice(x, starts=offsets, ends=ends, axes=[2, 3])


@converts("flip", "reverse")
def flip(n: Node) -> Value:
    return n.builder.flip(n[0], axes=[checked_axis(a, n[0].ndim) for a in n.integers("axis")])


# ---- copies -------------------------------------------------------------------------------------


@converts("broadcast_to")
def broadcast_to(n: Node) -> Value:
    x, target = n[0], n.integers("shape")
    if len(target) != x.ndim:
        raise UserError(f"{x} in the shape {target}")
    return n.builder.expand(
        x, shape=[d if t == 0 else t for t, d in zip(target, x.shape, strict=True)]
    )


@converts("broadcast_axis", "broadcast_axes")
def broadcast_axis(n: Node) -> Value:
    shape: list[Any] = list(n[0].shape)
    for axis, size in zip(n.integers("axis"), n.integers("size"), strict=True):
        shape[checked_axis(axis, len(shape))] = size
    return n.builder.expand(n[0], shape=shape)


@converts("broadcast_like")
def broadcast_like(n: Node) -> Value:
    x, like = n[0], n[1]
    if "lhs_axes" not in n:
        return n.builder.expand(x, shape=like.shape)
    shape: list[Any] = list(x.shape)
    for axis, other in zip(n.integers("lhs_axes"), n.integers("rhs_axes"), strict=True):
        shape[checked_axis(axis, len(shape))] = like.shape[checked_axis(other, like.ndim)]
    return n.builder.expand(x, shape=shape)


@converts("tile")
def tile(n: Node) -> Value:
    b, x, counts = n.builder, n[0], n.integers("reps")
    if len(counts) > x.ndim:
        x = b.reshape(x, shape=[*[1] * (len(counts) - x.ndim), *x.shape])
    counts = [*[1] * (x.ndim - len(counts)), *counts]
    return b.tile(x, repeats=counts)


@converts("repeat")
def repeat(n: Node) -> Value:
    b, x = n.builder, n[0]
    if "axis" not in n:
        x = b.reshape(x, shape=[as_dim(product(x.shape))])
    axis = n.axis("axis", 0, x.ndim)
    return b.repeat_elements(x, repeats=n.integer("repeats"), axis=axis)


@converts("Pad", "pad")
def pad(n: Node) -> Value:
    x, widths, mode = n[0], n.integers("pad_width"), n.text("mode")
    if mode not in ("constant", "edge", "reflect") or len(widths) != 2 * x.ndim:
        raise UserError(f"padding {widths} of {x} by {mode[:40]}")
    value = n.scalar(n.real("constant_value", 0.0), x) if mode == "constant" else None
    return n.builder.pad(x, value, before=widths[::2], after=widths[1::2], mode=mode)


# ---- constants ----------------------------------------------------------------------------------


@converts("_zeros", "_ones", "_full", "zeros", "ones")
def filled(n: Node) -> Value:
    """An extent of 0 is one that MXNet would infer: 1 does as well, by broadcasting."""
    shape = [max(d, 1) for d in n.integers("shape", [])]
    if math.prod(shape) > _MOST:
        raise UserError(f"a constant of shape {shape}")
    value = n.real("value") if n.op == "_full" else float("ones" in n.op)
    return n.builder.full(
        n.builder.constant(np.asarray(value), n.dtype("dtype", "float32")), shape=shape
    )


@converts("zeros_like", "ones_like")
def filled_like(n: Node) -> Value:
    return n.builder.full(n.scalar(float(n.op == "ones_like"), n[0]), shape=n[0].shape)


@converts("_arange")
def arange(n: Node) -> Value:
    start, stop, step = n.real("start", 0.0), n.real("stop", None), n.real("step", 1.0)
    if stop is None:
        start, stop = 0.0, start
    if step == 0 or not (stop - start) / step <= _MOST:
        raise UserError(f"numbers from {start} to {stop} by {step}")
    made = np.repeat(np.arange(start, stop, step), max(n.integer("repeat", 1), 1))
    return n.builder.constant(made, n.dtype("dtype", "float32"))


@converts("_contrib_arange_like")
def arange_like(n: Node) -> Value:
    b, x = n.builder, n[0]
    start, step = n.real("start", 0.0), n.real("step", 1.0)
    shape = list(x.shape) if "axis" not in n else [x.shape[n.axis("axis", 0, x.ndim)]]
    made = b.ramp(n.scalar(start, x), n.scalar(step, x), size=as_dim(product(shape)))
    return b.reshape(made, shape=shape)


@converts("shape_array")
def shape_array(n: Node) -> Value:
    return n.builder.shape_of(n[0])


@converts("size_array")
def size_array(n: Node) -> Value:
    return n.builder.reshape(n.builder.size_of(n[0]), shape=[1])
