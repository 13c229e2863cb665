"""Sums and other reductions, order, and elements by index."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.mxnet.node import Node, as_dim, checked_axis
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value, product
from tilewright.support.errors import UserError

_REDUCTIONS: Final = {
    "sum": "sum",
    "sum_axis": "sum",
    "mean": "mean",
    "prod": "prod",
    "max": "max",
    "max_axis": "max",
    "min": "min",
    "min_axis": "min",
}


def _axes(n: Node, x: Value) -> list[int]:
    """The axes that are reduced: given ones, or with `exclude` all others."""
    given: list[int] | None = n.integers("axis", None)
    if given is None:
        return list(range(x.ndim))
    axes = [checked_axis(a, x.ndim) for a in given]
    return [k for k in range(x.ndim) if k not in axes] if n.flag("exclude") else axes


@converts(*_REDUCTIONS)
def reduction(n: Node) -> Value:
    x, keep = n[0], n.flag("keepdims")
    axes = _axes(n, x)
    made = n.builder.emit(_REDUCTIONS[n.op], x, axes=axes, keepdims=keep)
    # MXNet has no tensors without dimensions.
    return made if made.ndim else n.builder.reshape(made, shape=[1])


@converts("norm")
def norm(n: Node) -> Value:
    order = n.integer("ord", 2)
    if order not in (1, 2):
        raise UserError(f"there is no {order}-norm here", remedy="use 1 or 2")
    x, keep = n[0], n.flag("keepdims")
    made = n.builder.emit(f"l{order}", x, axes=_axes(n, x), keepdims=keep)
    return made if made.ndim else n.builder.reshape(made, shape=[1])


@converts("argmax", "argmin")
def arg_max(n: Node) -> Value:
    """Positions are floats."""
    b, x = n.builder, n[0]
    if "axis" not in n:
        x = b.reshape(x, shape=[as_dim(product(x.shape))])
    axis = n.axis("axis", 0, x.ndim)
    places = b.emit(n.op, x, axis=axis, keepdims=n.flag("keepdims"))
    places = places if places.ndim else b.reshape(places, shape=[1])
    return b.cast(places, dtype="float32")


@converts("argmax_channel")
def argmax_channel(n: Node) -> Value:
    return n.builder.cast(n.builder.argmax(n[0], axis=1), dtype="float32")


# ---- order --------------------------------------------------------------------------------------


def _sorted(n: Node, default: bool) -> tuple[Value, Value, Value, int]:
    """The operand, its sorted elements, their former positions, and the axis."""
    b, x = n.builder, n[0]
    if "axis" not in n and n.definition.attrs.get("axis") == "None":
        x = b.reshape(x, shape=[as_dim(product(x.shape))])
    axis = n.axis("axis", -1, x.ndim)
    count: Any = n.integer("k", 0) if n.op == "topk" else 0
    if count < 0:
        raise UserError(f"the first {count} elements")
    k = min(count, n.extent(x, axis)) if count else x.shape[axis]
    values, places = b.top_k(x, k=as_dim(k), axis=axis, largest=not n.flag("is_ascend", default))
    return x, values, places, axis


@converts("sort")
def sort(n: Node) -> Value:
    return _sorted(n, True)[1]


@converts("argsort")
def argsort(n: Node) -> Value:
    return n.builder.cast(_sorted(n, True)[2], dtype=n.dtype("dtype", "float32"))


@converts("topk")
def top_k(n: Node) -> list[Value]:
    b, kind = n.builder, n.text("ret_typ", "indices")
    x, values, places, axis = _sorted(n, False)
    indices = b.cast(places, dtype=n.dtype("dtype", "float32"))
    if kind == "both":
        return [values, indices]
    if kind == "mask":
        nothing = b.full(n.scalar(0, x), shape=x.shape)
        ones = b.full(n.scalar(1, x), shape=places.shape)
        return [b.scatter_elements(nothing, places, ones, axis=axis)]
    if kind not in ("value", "indices"):
        raise UserError(f"the ret_typ {kind[:40]} is not known")
    return [values if kind == "value" else indices]


# ---- elements by index --------------------------------------------------------------------------


def _places(n: Node, places: Value, extent: int, mode: str) -> Value:
    """Indices within an extent: those outside are clamped, or wrap around."""
    b = n.builder
    whole = b.cast(n.index(places), dtype="int64")
    if mode == "wrap":
        return b.mod(whole, b.constant(extent, "int64"))
    if mode != "clip":
        return whole
    return b.clip(whole, b.constant(0, "int64"), b.constant(max(extent - 1, 0), "int64"))


@converts("Embedding")
def embedding(n: Node) -> Value:
    places = _places(n, n[0], n.extent(n[1], 0), "clip")
    return n.builder.gather(n[1], places, axis=0)


@converts("take")
def take(n: Node) -> Value:
    x = n[0]
    axis = n.axis("axis", 0, x.ndim)
    places = _places(n, n[1], n.extent(x, axis), n.text("mode", "clip"))
    return n.builder.gather(x, places, axis=axis)


@converts("pick", "choose_element_0index")
def pick(n: Node) -> Value:
    """One element along an axis for each place."""
    b, x, places = n.builder, n[0], n[1]
    axis = n.axis("axis", -1, x.ndim)
    places = _places(n, places, n.extent(x, axis), n.text("mode", "clip"))
    if places.ndim != x.ndim:
        places = b.unsqueeze(places, axes=[axis])
    made = b.gather_elements(x, places, axis=axis)
    return made if n.flag("keepdims") else b.squeeze(made, axes=[axis])


@converts("gather_nd")
def gather_nd(n: Node) -> Value:
    """Each column of the indices is a position."""
    b, places = n.builder, n.index(n[1])
    order = [*range(1, places.ndim), 0]
    return b.gather_nd(n[0], b.transpose(b.cast(places, dtype="int64"), axes=order))


@converts("one_hot")
def one_hot(n: Node) -> Value:
    dtype, depth = n.dtype("dtype", "float32"), n.integer("depth")
    if not 0 <= depth <= 1 << 24:
        raise UserError(f"the depth is {depth}")
    ends = np.array([n.real("off_value", 0.0), n.real("on_value", 1.0)])
    b = n.builder
    places = b.unsqueeze(b.cast(n.index(n[0]), dtype="int64"), axes=[n[0].ndim])
    # An index outside of the depth has no mark; it does not count from the end.
    hit = b.equal(places, b.constant(np.arange(depth), "int64"))
    off, on = (b.constant(v, dtype) for v in ends)
    return b.where(hit, on, off)


# ---- sequences ----------------------------------------------------------------------------------


def _lengths(n: Node, x: Value, axis: int) -> Value | None:
    if not n.flag("use_sequence_length"):
        return None
    if axis not in (0, 1) or x.ndim < 2:
        raise UserError(f"sequences along axis {axis} of {x}")
    return n.builder.cast(n.index(n[1]), dtype="int64")


@converts("SequenceMask")
def sequence_mask(n: Node) -> Value:
    b, x = n.builder, n[0]
    axis = n.axis("axis", 0, x.ndim)
    lengths = _lengths(n, x, axis)
    if lengths is None:
        return x
    places = b.constant(np.arange(n.extent(x, axis)), "int64")
    shape = [-1 if k == axis else 1 for k in range(x.ndim)]
    other = [-1 if k == 1 - axis else 1 for k in range(x.ndim)]
    inside = b.less(b.reshape(places, shape=shape), b.reshape(lengths, shape=other))
    return b.where(inside, x, n.scalar(n.real("value", 0.0), x))


@converts("SequenceReverse")
def sequence_reverse(n: Node) -> Value:
    x = n[0]
    lengths = _lengths(n, x, 0)
    if lengths is None:
        return n.builder.flip(x, axes=[0])
    return n.builder.reverse_sequence(x, lengths, batch_axis=1, time_axis=0)


@converts("SequenceLast")
def sequence_last(n: Node) -> Value:
    b, x = n.builder, n[0]
    axis = n.axis("axis", 0, x.ndim)
    lengths = _lengths(n, x, axis)
    if lengths is None:
        return b.gather(x, b.constant(-1, "int64"), axis=axis)
    rows = x if axis == 1 else b.transpose(x, axes=[1, 0, *range(2, x.ndim)])
    last = b.unsqueeze(b.sub(lengths, b.constant(1, "int64")), axes=[1])
    return b.gather_nd(rows, last, batch_dims=1)
