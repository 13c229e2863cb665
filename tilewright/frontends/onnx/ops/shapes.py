"""Shapes and layout: reshape, transpose, slices, padding, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Dim, Value, product
from tilewright.ir import Const, Expr, as_expr, maximum, minimum
from tilewright.support.errors import UserError

#: The rank that NumPy broadcasts at most.
_MAX_RANK: Final = 32

# ---- reshape ------------------------------------------------------------------------------------


@converts("Reshape", until=5)
def reshape_to_attribute(n: Node) -> Value:
    return _reshaped(n, n.integers("shape"))


@converts("Reshape", since=5)
def reshape(n: Node) -> Value:
    return _reshaped(n, n.dims(1))


def _reshaped(n: Node, wanted: Sequence[Dim]) -> Value:
    x, copies = n[0], not n.flag("allowzero")
    if any(n.is_read(d) for d in wanted):
        return n.builder.reshape(x, shape=_at_run_time(n, wanted, copies))
    shape = list(wanted)
    for k, dim in enumerate(shape):
        if isinstance(dim, int) and dim == 0 and copies:
            shape[k] = _copied(x, k)
    return n.builder.reshape(x, shape=shape)


def _copied(x: Value, axis: int) -> Expr:
    if axis >= x.ndim:
        raise UserError(f"dimension {axis} is 0", reason=f"{x} has no such dimension to copy")
    return x.shape[axis]


def _at_run_time(n: Node, wanted: Sequence[Dim], copies: bool) -> list[Dim]:
    """Sizes that may turn out to be -1 (the rest) or 0 (as in the operand) at run time."""
    source, sizes = n[0].shape, [as_expr(d) for d in wanted]
    if copies:
        pairs = zip(sizes, source, strict=False)
        sizes[: len(source)] = [d + old * (1 - _at_most_one(d * d)) for d, old in pairs]
        sizes = n.named(sizes, "given")
    left_out = [_at_most_one(-d) for d in sizes]
    others = n.named([d + 2 * out for d, out in zip(sizes, left_out, strict=True)], "other")
    rest = product(source) // maximum(product(others), 1)
    named = n.named([d + (rest + 1) * out for d, out in zip(sizes, left_out, strict=True)], "size")
    return list[Dim](named)


def _at_most_one(e: Expr) -> Expr:
    """1 where `e` is positive, else 0, by minimum and maximum: extents cannot contain selects."""
    return minimum(maximum(e, 0), 1)


@converts("Flatten")
def flatten(n: Node) -> Value:
    return n.builder.flatten(n[0], axis=n.integer("axis", 1))


@converts("Squeeze")
def squeeze(n: Node) -> Value:
    axes = n.axes(1)
    if axes is None:
        n.require_shape(0)
    return n.builder.squeeze(n[0], axes=axes)


@converts("Unsqueeze")
def unsqueeze(n: Node) -> Value:
    axes = n.axes(1)
    if axes is None:
        raise UserError("no axes are given")
    return n.builder.unsqueeze(n[0], axes=axes)


@converts("Transpose")
def transpose(n: Node) -> Value:
    return n.builder.transpose(n[0], axes=n.integers("perm", None))


@converts("DepthToSpace")
def depth_to_space(n: Node) -> Value:
    return n.builder.depth_to_space(n[0], block=n.integer("blocksize"), mode=n.text("mode", "DCR"))


@converts("SpaceToDepth")
def space_to_depth(n: Node) -> Value:
    x, block, b = n[0], n.integer("blocksize"), n.builder
    result = b.space_to_depth(x, block=block)
    if n.text("mode", "DCR") != "CRD":
        return result
    # Channels come before the pixels of the block, not after them.
    parts = [x.shape[0], block * block, x.shape[1], *result.shape[2:]]
    transposed = b.transpose(b.reshape(result, shape=parts), axes=[0, 2, 1, 3, 4])
    return b.reshape(transposed, shape=result.shape)


# ---- sizes --------------------------------------------------------------------------------------


@converts("Shape")
def shape(n: Node) -> Value:
    span = slice(n.integer("start", 0), n.integer("end", None))
    dims = n[0].shape[span]
    if all(isinstance(d, Const) for d in dims):
        return n.constant(np.array([d.value for d in dims if isinstance(d, Const)], np.int64))
    return n.builder.shape_of(n[0], start=span.start, end=span.stop)


@converts("Size")
def size(n: Node) -> Value:
    count = n[0].tensor.size
    if count is not None:
        return n.constant(np.asarray(count, np.int64))
    return n.builder.prod(n.builder.shape_of(n[0]), axes=[0])


@converts("Expand")
def expand(n: Node) -> Value:
    shape = n.dims(1)
    if len(shape) > _MAX_RANK:
        reason = f"there are at most {_MAX_RANK}"
        raise UserError(f"a tensor of {len(shape)} dimensions", reason=reason)
    return n.builder.expand(n[0], shape=shape)


@converts("Tile", until=6)
def tile_along_axis(n: Node) -> Value:
    repeats: list[Dim] = [1] * n[0].ndim
    repeats[n.number(2)] = n.number(1)
    return n.builder.tile(n[0], repeats=repeats)


@converts("Tile", since=6)
def tile(n: Node) -> Value:
    return n.builder.tile(n[0], repeats=n.dims(1))


# ---- parts --------------------------------------------------------------------------------------


@converts("Slice", until=10)
def slice_by_attributes(n: Node) -> Value:
    return n.builder.slice(
        n[0], starts=n.integers("starts"), ends=n.integers("ends"), axes=n.integers("axes", None)
    )


@converts("Slice", since=10)
def slice_by_operands(n: Node) -> Value:
    axes = n.numbers(3) if n.get(3) is not None else None
    starts, ends = (n.dims(k, None if axes is None else len(axes)) for k in (1, 2))
    ends, axes = [_end(d) for d in ends], list(range(len(starts))) if axes is None else axes
    steps = n.numbers(4) if n.get(4) is not None else None
    if steps is not None and all(-n[0].ndim <= axis < n[0].ndim for axis in axes):
        extents = [n[0].shape[axis] for axis in axes]
        starts = [_start(*bounds) for bounds in zip(starts, extents, steps, strict=True)]
    return n.builder.slice(n[0], starts=starts, ends=ends, axes=axes, steps=steps)


def _start(dim: Dim, extent: Expr, step: int) -> Dim:
    """Going backwards, a start before the front is the first element; NumPy takes nothing."""
    if step > 0 or (isinstance(dim, int) and dim >= -1):
        return dim
    return maximum(as_expr(dim), -extent)


def _end(dim: Dim) -> Dim:
    """Exporters write numbers from a billion on for the end."""
    return _TO_THE_END if isinstance(dim, int) and dim >= 10**9 else dim


_TO_THE_END: Final = 2**63 - 1


@converts("Concat")
def concat(n: Node) -> Value:
    return n.builder.concat(*n.all, axis=n.integer("axis", 1 if n.version < 4 else None))


@converts("Split")
def split(n: Node) -> list[Value]:
    axis = n.integer("axis", 0)
    return split_along(n, n[0], _split_sizes(n, axis), axis)


def split_along(n: Node, x: Value, sizes: Sequence[Dim], axis: int) -> list[Value]:
    """Parts of a tensor."""
    return list(n.builder.emit_all("split", [x], {"sizes": sizes, "axis": axis}))


def _split_sizes(n: Node, axis: int) -> list[Dim]:
    if n.get(1) is not None:
        return n.dims(1)
    given = n.integers("split", None)
    if given is not None:
        return given
    count = n.integer("num_outputs", n.output_count)
    if not 0 < count <= _MAX_PARTS:
        raise UserError(f"a split into {count} parts")
    if not -n[0].ndim <= axis < n[0].ndim:
        raise UserError(f"{n[0]} has no axis {axis}")
    extent = n[0].shape[axis]
    return [extent // count] * count if n.version < 18 else equal_parts(extent, count)


def equal_parts(extent: Expr, count: int) -> list[Dim]:
    """This many parts of one size, except for a smaller last one."""
    part = (extent + (count - 1)) // count
    if isinstance(extent, Const):
        size = -(-int(extent.value) // count)
        return [min(size, max(int(extent.value) - size * k, 0)) for k in range(count)]
    return [*([part] * (count - 1)), extent - part * (count - 1)]


_MAX_PARTS: Final = 1 << 20


# ---- borders ------------------------------------------------------------------------------------


@converts("Pad", until=11)
def pad_by_attributes(n: Node) -> Value:
    pads = n.integers("pads" if n.has("pads") else "paddings")
    return _padded(n, pads, None, n.scalar(n.real("value", 0.0), n[0]))


@converts("Pad", since=11)
def pad(n: Node) -> Value:
    axes = n.numbers(3) if n.get(3) is not None else None
    return _padded(n, n.dims(1), axes, n.get(2))


def _padded(n: Node, pads: Sequence[Dim], axes: list[int] | None, value: Value | None) -> Value:
    x = n[0]
    axes = list(range(x.ndim)) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise UserError(f"{len(pads)} pads are given for {len(axes)} axes")
    before: list[Dim] = [0] * x.ndim
    after: list[Dim] = [0] * x.ndim
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return n.builder.pad(x, value, before=before, after=after, mode=n.text("mode", "constant"))


@converts("CenterCropPad")
def center_crop_pad(n: Node) -> Value:
    return n.builder.center_crop_pad(n[0], shape=n.dims(1), axes=n.integers("axes", None))
