"""Shapes, slices, padding, joining and splitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import Const, as_expr
from tilewright.support.errors import UserError

# ---- sizes --------------------------------------------------------------------------------------


def _shape(n: Node, x: Value) -> Value:
    dtype = n.dtype("out_type") if n.has("out_type") else "int32"
    if all(isinstance(d, Const) for d in x.shape):
        numbers = [int(d.value) for d in x.shape if isinstance(d, Const)]
        return n.constant(np.array(numbers, np.int64), dtype)
    return n.builder.dims(elements=list(x.shape), shape=[x.ndim], dtype=dtype)


@converts("Shape")
def shape(n: Node) -> Value:
    return _shape(n, n[0])


@converts("ShapeN")
def shapes(n: Node) -> list[Value]:
    return [_shape(n, x) for x in n.all]


@converts("Size")
def size(n: Node) -> Value:
    dtype = n.dtype("out_type") if n.has("out_type") else "int32"
    count = as_expr(1)
    for dim in n[0].shape:
        count = count * dim
    return n.builder.dims(elements=[count], shape=[], dtype=dtype)


@converts("Rank")
def rank(n: Node) -> Value:
    return n.constant(n[0].ndim, "int32")


# ---- reshape ------------------------------------------------------------------------------------


@converts("Reshape")
def reshape(n: Node) -> Value:
    return n.builder.reshape(n[0], shape=n.dims(1))


@converts("Squeeze")
def squeeze(n: Node) -> Value:
    axes = n.integers("squeeze_dims", None) or n.integers("axis", None)
    if not axes:
        axes = [k for k, d in enumerate(n[0].shape) if dim_number(d) == 1]
        if any(not isinstance(d, Const) for d in n[0].shape):
            n.require_shape(0)
    return n.builder.squeeze(n[0], axes=axes)


@converts("ExpandDims")
def expand_dims(n: Node) -> Value:
    return n.builder.unsqueeze(n[0], axes=[n.number(1)])


@converts("Transpose", "ConjugateTranspose")
def transpose(n: Node) -> Value:
    return n.builder.transpose(n[0], axes=n.numbers(1))


@converts("BroadcastTo")
def broadcast_to(n: Node) -> Value:
    return n.builder.expand(n[0], shape=n.dims(1))


@converts("BroadcastArgs")
def broadcast_args(n: Node) -> Value:
    a, b = (n.numbers(k) for k in (0, 1))
    return n.constant(np.array(np.broadcast_shapes(tuple(a), tuple(b))), n[0].dtype)


@converts("Tile")
def tile(n: Node) -> Value:
    return n.builder.tile(n[0], repeats=n.dims(1))


@converts("InvertPermutation")
def invert_permutation(n: Node) -> Value:
    return n.constant(np.argsort(n.numbers(0)), n[0].dtype)


# ---- joining and splitting ----------------------------------------------------------------------


@converts("ConcatV2", "Concat")
def concat(n: Node) -> Value:
    at = 0 if n.op == "Concat" else len(n.inputs) - 1
    values = [n[k] for k in range(len(n.inputs)) if k != at]
    axis = n.number(at)
    return n.builder.concat(*values, axis=axis) if len(values) > 1 else values[0]


@converts("ParallelConcat")
def parallel_concat(n: Node) -> Value:
    return n.builder.concat(*n.all, axis=0)


@converts("Pack")
def pack(n: Node) -> Value:
    axis, b = n.integer("axis", 0), n.builder
    values = [b.unsqueeze(v, axes=[axis]) for v in n.all]
    return b.concat(*values, axis=axis) if len(values) > 1 else values[0]


@converts("Unpack")
def unpack(n: Node) -> list[Value]:
    axis, count, b = n.integer("axis", 0), n.integer("num"), n.builder
    if not 0 <= count <= 1 << 16:
        raise UserError(f"{n.name} makes {count} parts")
    parts = _split(n, n[0], [1] * count, axis)
    return [b.squeeze(p, axes=[axis]) for p in parts]


def _split(n: Node, x: Value, sizes: Sequence[Dim], axis: int) -> list[Value]:
    return list(n.builder.emit_all("split", [x], {"sizes": sizes, "axis": axis}))


@converts("Split")
def split(n: Node) -> list[Value]:
    axis, x, count = n.number(0), n[1], n.integer("num_split")
    if not 0 < count <= 1 << 16:
        raise UserError(f"{n.name} makes {count} parts")
    return _split(n, x, [x.shape[axis] // count] * count, axis)


@converts("SplitV")
def split_by_sizes(n: Node) -> list[Value]:
    x, axis = n[0], n.number(2)
    sizes = n.dims(1)
    open_ = [k for k, s in enumerate(sizes) if isinstance(s, int) and s == -1]
    if len(open_) == 1:
        rest = x.shape[axis]
        for k, s in enumerate(sizes):
            rest = rest - s if k not in open_ else rest
        sizes[open_[0]] = rest
    return _split(n, x, sizes, axis)


# ---- slices -------------------------------------------------------------------------------------


@converts("Slice")
def slice_(n: Node) -> Value:
    x, starts, sizes = n[0], n.dims(1), n.dims(2)
    ends: list[Dim] = [
        x.shape[k] if isinstance(s, int) and s == -1 else as_expr(start) + s
        for k, (start, s) in enumerate(zip(starts, sizes, strict=True))
    ]
    return n.builder.slice(x, starts=starts, ends=[dim_number(e) for e in ends])


@converts("StridedSlice")
def strided_slice(n: Node) -> Value:
    """NumPy's indexing: masks mark entries that are omitted, `...`, new axes or single numbers."""
    x, b = n[0], n.builder
    begins, ends = (n.dims(k) for k in (1, 2))
    steps = n.numbers(3)
    if not len(begins) == len(ends) == len(steps):
        raise UserError(f"{n.name} has {len(begins)} begins, {len(ends)} ends, {len(steps)} steps")
    masks = {k: n.integer(f"{k}_mask", 0) for k in _MASKS}
    plan = _Plan(n, x, len(steps), masks)
    starts, stops, strides, axes = list[Any](), list[Any](), list[int](), list[int]()
    for k, axis in plan.entries:
        begin = None if masks["begin"] >> k & 1 else begins[k]
        end = None if masks["end"] >> k & 1 else ends[k]
        step = steps[k]
        if axis in plan.single:
            begin, step = begins[k], 1
            end = None if isinstance(begin, int) and begin == -1 else begin + 1
        if begin is None and end is None and step == 1:
            continue
        starts.append((0 if step > 0 else -1) if begin is None else begin)
        stops.append((_FAR if step > 0 else -_FAR) if end is None else end)
        strides.append(step)
        axes.append(axis)
    if axes:
        x = b.slice(x, starts=starts, ends=stops, axes=axes, steps=strides)
    return plan.finished(b, x)


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
_FAR = 2**63 - 1


class _Plan:
    """The axis of each entry, the axes that are dropped, and those that are new."""

    def __init__(self, n: Node, x: Value, count: int, masks: dict[str, int]) -> None:
        self.entries: list[tuple[int, int]] = []
        self.single: set[int] = set()
        #: The axes of the result: of the operand, or None for a new one.
        self._kept: list[int | None] = []
        named = [k for k in range(count) if not (masks["ellipsis"] | masks["new_axis"]) >> k & 1]
        hidden = x.ndim - len(named)
        if hidden < 0:
            raise UserError(f"{n.name} has {len(named)} entries for {x}")
        axis, has_ellipsis = 0, False
        for k in range(count):
            if masks["ellipsis"] >> k & 1:
                has_ellipsis = True
                self._kept += range(axis, axis + hidden)
                axis += hidden
            elif masks["new_axis"] >> k & 1:
                self._kept.append(None)
            else:
                self.entries.append((k, axis))
                if masks["shrink_axis"] >> k & 1:
                    self.single.add(axis)
                else:
                    self._kept.append(axis)
                axis += 1
        if not has_ellipsis:
            self._kept += range(axis, x.ndim)

    def finished(self, b: Any, x: Value) -> Value:
        if self.single:
            x = b.squeeze(x, axes=sorted(self.single))
        new = [k for k, axis in enumerate(self._kept) if axis is None]
        return b.unsqueeze(x, axes=new) if new else x


@converts("ReverseV2", "Reverse")
def reverse(n: Node) -> Value:
    if n[1].dtype.name == "bool":
        axes = [k for k, flag in enumerate(n.array(1).ravel()) if flag]
    else:
        axes = n.numbers(1)
    return n.builder.flip(n[0], axes=axes) if axes else n[0]


@converts("ReverseSequence")
def reverse_sequence(n: Node) -> Value:
    """The graph's operator needs time and batch as the first two axes."""
    x, b = n[0], n.builder
    time, batch = n.integer("seq_dim") % x.ndim, n.integer("batch_dim", 0) % x.ndim
    order = [time, batch, *(k for k in range(x.ndim) if k not in (time, batch))]
    reversed_rows = b.reverse_sequence(
        b.transpose(x, axes=order), b.cast(n[1], dtype="int64"), batch_axis=1, time_axis=0
    )
    return b.transpose(reversed_rows, axes=[order.index(k) for k in range(x.ndim)])


@converts("Roll")
def roll(n: Node) -> Value:
    shifts, axes = n.numbers(1), n.numbers(2)
    return n.builder.roll(n[0], shifts=shifts, axes=axes)


# ---- borders ------------------------------------------------------------------------------------


@converts("Pad", "PadV2", "MirrorPad")
def pad(n: Node) -> Value:
    pairs = n.dims(1)
    modes = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}
    mode = modes.get(n.text("mode"), "") if n.op == "MirrorPad" else "constant"
    x, b = n[0], n.builder
    if mode == "symmetric":
        return _mirrored(n, x, pairs)
    value = n[2] if n.op == "PadV2" else None
    before, after = pairs[::2], pairs[1::2]
    if x.ndim == 4 and not any(isinstance(p, int) and p for p in (before[3], after[3])):
        # An image: channels first, like the convolutions around it, so that transposes
        # cancel.
        order = [0, 3, 1, 2]
        before, after = ([side[k] for k in order] for side in (before, after))
        image = b.pad(b.transpose(x, axes=order), value, before=before, after=after, mode=mode)
        return b.transpose(image, axes=[0, 2, 3, 1])
    return b.pad(x, value, before=before, after=after, mode=mode)


def _mirrored(n: Node, x: Value, pairs: Sequence[Dim]) -> Value:
    """Borders that repeat the edge itself: parts of the tensor, reversed."""
    b = n.builder
    for axis, (before, after) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        extent = x.shape[axis]
        parts = [x]
        if before != 0:
            front = b.slice(x, starts=[0], ends=[before], axes=[axis])
            parts.insert(0, b.flip(front, axes=[axis]))
        if after != 0:
            back = b.slice(x, starts=[extent - after], ends=[extent], axes=[axis])
            parts.append(b.flip(back, axes=[axis]))
        x = b.concat(*parts, axis=axis) if len(parts) > 1 else x
    return x
