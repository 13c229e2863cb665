"""The greatest elements of windows of images N×C×spatial, and their positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import Blocking, Form, window_layouts
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.neural.pooled_window import PooledWindow
from tilewright.graph.ops.neural.pooling import pooled_places, pooled_shape
from tilewright.graph.ops.neural.windows import Window
from tilewright.ir import DType, Expr, as_expr
from tilewright.tensor import te


@op
def max_pool(
    x: Value,
    *,
    kernel: Ints,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
    return_indices: bool = False,
    column_major: bool = False,
) -> Type | tuple[Type, ...]:
    """The greatest element in every window; padding never wins.

    `return_indices` gives where it is too (of equals the first in the window), in the whole tensor
    laid out row by row, or with the spatial axes `column_major`.
    """
    require_kind("number", x)
    result = TensorType(x.dtype, pooled_shape(x, kernel, strides, pads, dilations, ceil_mode))
    return (result, result.with_dtype("int64")) if return_indices else result


@max_pool.reference
def max_pool_reference(
    x: Array,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    ceil_mode: bool,
    return_indices: bool,
    column_major: bool,
) -> Any:
    window = Window.of(kernel, strides, pads, dilations).numbers()
    places = pooled_places(window, x.shape, ceil_mode)
    least = -np.inf if DType.of(x.dtype).is_float else DType.of(x.dtype).min_value
    seen = PooledWindow.over(window, x.shape[2:])
    best = np.full((*x.shape[:2], *places), least, x.dtype)
    where = np.full(best.shape, -1, np.int64)
    at = seen.patches(_positions(x.shape, column_major), places, -1)
    for (values, inside), (indices, _) in zip(seen.patches(x, places, least), at, strict=True):
        wins = (values > best) | (np.isnan(values) & ~np.isnan(best))
        takes = (wins | (where < 0)) & inside
        best, where = np.where(takes, values, best), np.where(takes, indices, where)
    return (best, where) if return_indices else best


def _positions(shape: Sequence[int], column_major: bool) -> Array:
    if not column_major:
        return np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    planes = int(np.prod(shape[:2]))
    spatial = shape[2:]
    size = int(np.prod(spatial))
    own = np.arange(size, dtype=np.int64).reshape(spatial, order="F")
    return (np.arange(planes).reshape(*shape[:2], *[1] * len(spatial)) * size + own).astype("i8")


@max_pool.compute
def max_pool_compute(
    x: te.Tensor,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    ceil_mode: bool,
    return_indices: bool,
    column_major: bool,
    out: Any,
) -> Any:
    window = Window.of(kernel, strides, pads, dilations)
    seen = PooledWindow.over(window, x.shape[2:])
    rk = seen.axes()
    names = ["n", "c", *window.names]
    stays = window.stays_inside(ceil_mode) and not seen.is_clipped
    if return_indices:
        return _with_indices(x, seen, rk, out[0].shape, column_major, stays)

    def element(*i: Expr) -> Any:
        value, inside = seen.inside(x, i, rk)
        return te.max(value, axis=rk, where=None if stays else inside)

    return te.compute(out.shape, element, name="max_pool", axis_names=names)


@max_pool.layouts
def max_pool_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    if not call.attrs["return_indices"]:
        yield from window_layouts(blocking, call, out)


def _with_indices(
    x: te.Tensor,
    seen: PooledWindow,
    rk: Sequence[te.ReduceAxis],
    shape: Sequence[Expr],
    column_major: bool,
    stays: bool,
) -> tuple[te.Tensor, te.Tensor]:
    """The greatest elements, and their positions: first in the window, as small integers."""
    names = ["n", "c", *seen.window.names]

    def place(*i: Expr) -> Any:
        value, inside = seen.inside(x, i, rk)
        at = te.cast(_flat([k.var for k in rk], [k.extent for k in rk], False), "int32")
        where = None if stays else inside
        return te.argmax(value, axis=rk, index=at, where=where, with_value=True)

    at, best = te.compute(shape, place, name="max_pool", axis_names=names)

    def element(*i: Expr) -> Expr:
        k = _unflat(te.cast(at[i], "int64"), [as_expr(n) for n in seen.taps])
        return _flat([*i[:2], *seen.at(i[2:], k)], x.shape, column_major)

    return best, te.compute(shape, element, name="max_pool_indices", axis_names=names)


def _unflat(position: Expr, shape: Sequence[Expr]) -> list[Expr]:
    indices: list[Expr] = []
    for extent in reversed(shape):
        indices.append(te.floormod(position, extent))
        position = te.floordiv(position, extent)
    return indices[::-1]


def _flat(indices: Sequence[Expr], shape: Sequence[Expr], column_major: bool) -> Expr:
    order = list(range(len(shape)))
    if column_major:
        order = [0, 1, *reversed(order[2:])]
    position: Expr = indices[order[0]]
    for axis in order[1:]:
        position = position * shape[axis] + indices[axis]
    return position
