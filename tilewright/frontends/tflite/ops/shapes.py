"""Other shapes of the same elements, and parts of them put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.frontends.tflite.fixed_point import (
    all_bytes,
    away_from_zero,
    by_table,
    is_bytes,
    rescaled,
    same_scale,
)
from tilewright.frontends.tflite.images import activated
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr, maximum, minimum
from tilewright.support.errors import UserError

#: An end beyond every extent.
_FAR: Final = (1 << 31) - 1

# ---- shapes -------------------------------------------------------------------------------------


@converts("RESHAPE")
def reshape(n: Node) -> Value:
    if n.has(1):
        return reshaped(n, n.dims(1))
    return reshaped(n, list[Dim](n.option("shape")))


def reshaped(n: Node, shape: Sequence[Dim]) -> Value:
    """The first operand in another shape; complex numbers keep their two parts."""
    wanted = list(shape)
    # A shape of one zero has always meant a scalar.
    if wanted == [0] and n[0].tensor.size == 1:
        wanted = []
    return n.builder.reshape(n[0], shape=[*wanted, *parts(n)])


def parts(n: Node) -> list[Dim]:
    """The last dimension that complex numbers have more than the file says."""
    return [2] if n.tensor(0).type.startswith("complex") else []


def rank(n: Node) -> int:
    """How many dimensions the first operand has."""
    return n[0].ndim - len(parts(n))


def axis_of(axis: int, dims: int) -> int:
    """An axis from the front."""
    if not -dims <= axis < dims:
        raise UserError(f"there is no axis {axis} of {dims}")
    return axis % dims


@converts("SQUEEZE")
def squeeze(n: Node) -> Value:
    axes = [axis_of(a, rank(n)) for a in n.option("dims")]
    shape = n[0].shape[: rank(n)]
    if not axes:
        axes = [k for k, d in enumerate(shape) if n.is_equal(d, 1)]
    return n.builder.squeeze(n[0], axes=axes) if axes else n[0]


@converts("EXPAND_DIMS")
def expand_dims(n: Node) -> Value:
    return n.builder.unsqueeze(n[0], axes=[axis_of(n.number(1), rank(n) + 1)])


@converts("TRANSPOSE")
def transpose(n: Node) -> Value:
    return n.builder.transpose(n[0], axes=n.numbers(1))


@converts("SHAPE")
def shape(n: Node) -> Value:
    return n.builder.cast(n.builder.shape_of(n[0]), dtype=n.out_dtype())


@converts("RANK")
def rank_of(n: Node) -> Value:
    return n.constant(n[0].ndim, n.out_dtype())


@converts("BROADCAST_TO")
def broadcast_to(n: Node) -> Value:
    return n.builder.expand(n[0], shape=n.dims(1))


@converts("BROADCAST_ARGS")
def broadcast_args(n: Node) -> Value:
    """The shape that two shapes broadcast to."""
    sides = [n.dims(0), n.dims(1)]
    size = max(map(len, sides))
    full = [[1] * (size - len(s)) + s for s in sides]
    dims: list[Any] = [a if n.is_equal(b, 1) else b for a, b in zip(*full, strict=True)]
    return n.builder.dims(elements=dims, shape=[size], dtype=n.out_dtype())


@converts("FILL")
def fill(n: Node) -> Value:
    return n.builder.full(n.builder.reshape(n[1], shape=[]), shape=n.dims(0))


@converts("RANGE")
def range_(n: Node) -> Value:
    return n.builder.range(*(n.builder.reshape(v, shape=[]) for v in n.all))


@converts("TILE")
def tile(n: Node) -> Value:
    return n.builder.tile(n[0], repeats=n.dims(1, n[0].ndim))


# ---- parts --------------------------------------------------------------------------------------


@converts("SLICE")
def slice_(n: Node) -> Value:
    """The given number of elements from a start on; -1 means all the rest."""
    starts, sizes = n.dims(1, n[0].ndim), n.dims(2, n[0].ndim)
    ends = [
        _FAR if n.is_equal(size, -1) else as_expr(b) + size
        for b, size in zip(starts, sizes, strict=True)
    ]
    return n.builder.slice(n[0], starts=starts, ends=ends)


@converts("STRIDED_SLICE")
def strided_slice(n: Node) -> Value:
    """NumPy's indexing, written as starts, ends and steps with masks."""
    starts, ends = n.dims(1), n.dims(2)
    steps = n.numbers(3)
    masks = {m: n.option(m) for m in ("begin", "end", "ellipsis", "new_axis", "shrink")}
    if n.option("offset"):
        ends = [as_expr(s) + e for s, e in zip(starts, ends, strict=True)]
    return _Strided(n, masks).sliced(starts, ends, steps)


class _Strided:
    """What masks make of starts, ends and steps, one bit for each of them."""

    def __init__(self, n: Node, masks: dict[str, int]) -> None:
        self._n, self._masks = n, masks
        self._spans: list[tuple[int, Dim, Dim, int]] = []
        self._new: list[int] = []
        self._shrunk: list[int] = []

    def sliced(self, starts: Sequence[Dim], ends: Sequence[Dim], steps: Sequence[int]) -> Value:
        n, axis, made = self._n, 0, 0
        given = sum(
            not self._is("new_axis", k) and not self._is("ellipsis", k) for k in range(len(starts))
        )
        for k, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True)):
            if self._is("ellipsis", k):
                skipped = n[0].ndim - given
                axis, made = axis + skipped, made + skipped
            elif self._is("new_axis", k):
                self._new.append(made)
                made += 1
            else:
                self._span(k, axis, start, end, step)
                if self._is("shrink", k):
                    self._shrunk.append(axis)
                else:
                    made += 1
                axis += 1
        return self._emitted()

    def _is(self, mask: str, k: int) -> bool:
        return bool(self._masks[mask] >> k & 1)

    def _span(self, k: int, axis: int, start: Dim, end: Dim, step: int) -> None:
        if self._is("shrink", k):
            last = self._n.is_equal(start, -1)
            self._spans.append((axis, start, _FAR if last else as_expr(start) + 1, 1))
            return
        if step == 0:
            raise UserError("the step of a slice is 0")
        if self._is("begin", k):
            start = 0 if step > 0 else _FAR
        if self._is("end", k):
            end = _FAR if step > 0 else -_FAR - 1
        self._spans.append((axis, start, end, step))

    def _emitted(self) -> Value:
        n, b = self._n, self._n.builder
        spans = [s for s in self._spans if (s[1], s[2], s[3]) != (0, _FAR, 1)]
        y = n[0]
        if spans:
            axes, starts, ends, steps = zip(*spans, strict=True)
            y = b.slice(y, starts=starts, ends=ends, axes=axes, steps=steps)
        if self._shrunk:
            y = b.squeeze(y, axes=self._shrunk)
        return b.unsqueeze(y, axes=self._new) if self._new else y


@converts("SPLIT")
def split(n: Node) -> list[Value]:
    axis = axis_of(n.number(0), n[1].ndim)
    count = n.output_count
    size = as_expr(n[1].shape[axis]) // max(count, 1)
    return _several(n.builder.split(n[1], sizes=[size] * count, axis=axis))


@converts("SPLIT_V")
def split_v(n: Node) -> list[Value]:
    axis = axis_of(n.number(2), n[0].ndim)
    sizes = n.dims(1)
    free = [k for k, s in enumerate(sizes) if n.is_equal(s, -1)]
    if free:
        others = sum((as_expr(s) for k, s in enumerate(sizes) if k not in free), as_expr(0))
        sizes[free[0]] = as_expr(n[0].shape[axis]) - others
    return _several(n.builder.split(n[0], sizes=sizes, axis=axis))


def _several(made: Any) -> list[Value]:
    return [made] if isinstance(made, Value) else list(made)


@converts("UNPACK")
def unpack(n: Node) -> list[Value]:
    axis = axis_of(n.option("axis"), n[0].ndim)
    split_ = _several(n.builder.split(n[0], sizes=[1] * n.output_count, axis=axis))
    return [n.builder.squeeze(v, axes=[axis]) for v in split_]


# ---- joining ------------------------------------------------------------------------------------


@converts("CONCATENATION")
def concatenation(n: Node) -> Value:
    axis = axis_of(n.option("axis"), n[0].ndim)
    y = n.builder.concat(*(_on_scale_of_result(n, k) for k in range(len(n.inputs))), axis=axis)
    return activated(n, y) if y.dtype.is_float else y


def _on_scale_of_result(n: Node, index: int) -> Value:
    """An operand as the result stores it."""
    x, how, out = n[index], n.tensor(index).quantization, n.out().quantization
    if how is None or out is None or same_scale(how, out) or not x.dtype.is_integer:
        return x
    if not is_bytes(x):
        return rescaled(n, x, how, x.dtype, out)
    factor = how.scale * np.float32(np.float32(1) / out.scale)
    moved = all_bytes(x).astype(np.float32) * factor + np.float32(-how.zero * factor)
    stored = np.clip(away_from_zero(moved) + out.zero, x.dtype.min_value, x.dtype.max_value)
    return by_table(n, x, stored.astype(x.dtype.numpy))


@converts("PACK")
def pack(n: Node) -> Value:
    axis = axis_of(n.option("axis"), n[0].ndim + 1)
    return n.builder.concat(*(n.builder.unsqueeze(v, axes=[axis]) for v in n.all), axis=axis)


@converts("PAD", "PADV2")
def pad(n: Node) -> Value:
    before, after = _pads(n)
    value = n.get(2)
    if value is not None:
        value = n.builder.reshape(value, shape=[])
    elif n.is_quantized:
        value = n.scalar(n.out_quantization().zero, n[0])
    return n.builder.pad(n[0], value, before=before, after=after)


def _pads(n: Node) -> tuple[list[Dim], list[Dim]]:
    found = n.dims(1, 2 * n[0].ndim)
    return found[::2], found[1::2]


@converts("MIRROR_PAD")
def mirror_pad(n: Node) -> Value:
    before, after = _pads(n)
    if n.option("mode") == 0:
        return n.builder.pad(n[0], before=before, after=after, mode="reflect")
    return _symmetric(n, before, after)


def _symmetric(n: Node, before: Sequence[Dim], after: Sequence[Dim]) -> Value:
    """Padding that repeats the border too: reversed parts beside the tensor."""
    b, y = n.builder, n[0]
    for axis, (front, back) in enumerate(zip(before, after, strict=True)):
        if n.is_equal(front, 0) and n.is_equal(back, 0):
            continue
        first = b.slice(y, starts=[0], ends=[front], axes=[axis])
        last = b.slice(y, starts=[as_expr(y.shape[axis]) - back], ends=[_FAR], axes=[axis])
        y = b.concat(b.flip(first, axes=[axis]), y, b.flip(last, axes=[axis]), axis=axis)
    return y


@converts("REVERSE_V2")
def reverse(n: Node) -> Value:
    return n.builder.flip(n[0], axes=[axis_of(a, n[0].ndim) for a in n.numbers(1)])


@converts("REVERSE_SEQUENCE")
def reverse_sequence(n: Node) -> Value:
    lengths = n.builder.cast(n[1], dtype="int64")
    return n.builder.reverse_sequence(
        n[0], lengths, batch_axis=n.option("batch"), time_axis=n.option("time")
    )


@converts("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(n: Node) -> Value:
    """`x` with a part written over, from a start on that is moved so that all of it fits."""
    x, update, b = n[0], n[1], n.builder
    starts = n.dims(2, x.ndim)
    held = [
        minimum(maximum(as_expr(s), 0), as_expr(d) - u)
        for s, d, u in zip(starts, x.shape, update.shape, strict=True)
    ]
    y = update
    # From the last axis on, what is around the update is put beside it.
    for axis in reversed(range(x.ndim)):
        if n.is_equal(x.shape[axis], update.shape[axis]):
            continue
        other = list(range(axis))
        inner = (
            b.slice(
                x,
                starts=held[:axis],
                ends=[h + u for h, u in zip(held, update.shape[:axis], strict=False)],
                axes=other,
            )
            if axis
            else x
        )
        end = as_expr(held[axis]) + update.shape[axis]
        front = b.slice(inner, starts=[0], ends=[held[axis]], axes=[axis])
        back = b.slice(inner, starts=[end], ends=[_FAR], axes=[axis])
        y = b.concat(front, y, back, axis=axis)
    return y
