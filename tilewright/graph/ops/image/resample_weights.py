"""Resizing along one axis by sums: the elements used at a coordinate, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.layouts.images import along_axis_layouts
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.image.resample import as_double, held_inside
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.graph.sizes.axes import tidy
from tilewright.ir import Expr, as_expr, maximum
from tilewright.tensor import te

#: Sums of at most this many elements are unrolled.
_FEW = 8

#: How far to each side of a coordinate elements are used.
RADIUS = {"linear": 1, "cubic": 2}


@op
def resample_weights(
    coordinates: Value,
    *,
    source: Dim,
    numerator: Dim,
    denominator: Dim,
    mode: str,
    cubic_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
) -> tuple[Type, Type]:
    """The places of the elements that count at each coordinate, and their weights.

    Elements beyond the border are those at the border, or have no weight (`exclude_outside`). With
    `antialias`, weights are stretched by the scale where that is below 1.
    """
    count = _count(mode, numerator, denominator, antialias)
    shape = [*coordinates.shape, count]
    return TensorType("int64", shape), TensorType("float64", shape)


def _count(mode: str, numerator: Dim, denominator: Dim, antialias: bool) -> Expr:
    """How many elements are used at each coordinate."""
    radius = RADIUS[mode]
    if not antialias:
        return as_expr(2 * radius)
    top, bottom = as_expr(numerator), as_expr(denominator)
    return tidy((maximum(top, bottom) * radius + top - 1) // top * 2)


def _weight(m: Any, select: Callable[[Any, Any, Any], Any], mode: str, a: float, d: Any) -> Any:
    """The weight of an element at the distance `d`."""
    d = m.abs(d)
    if mode == "linear":
        return m.maximum(1.0 - d, 0.0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1.0
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return select(d <= 1.0, near, select(d < 2.0, far, d * 0.0))


@resample_weights.reference
def resample_weights_reference(
    coordinates: Array,
    *,
    source: int,
    numerator: int,
    denominator: int,
    mode: str,
    cubic_a: float,
    exclude_outside: bool,
    antialias: bool,
) -> tuple[Array, Array]:
    count = known_dim(_count(mode, numerator, denominator, antialias)) or 0
    stretch = min(1.0, numerator / denominator) if antialias else 1.0
    first = np.floor(coordinates).astype(np.int64) + 1 - count // 2
    places = first[:, None] + np.arange(count)
    weights = _weight(np, np.where, mode, cubic_a, (places - coordinates[:, None]) * stretch)
    if exclude_outside:
        weights = np.where((places < 0) | (places >= source), 0.0, weights)
    if exclude_outside or antialias:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return np.clip(places, 0, source - 1), weights


@resample_weights.compute
def resample_weights_compute(
    coordinates: te.Tensor,
    *,
    source: Dim,
    numerator: Dim,
    denominator: Dim,
    mode: str,
    cubic_a: float,
    exclude_outside: bool,
    antialias: bool,
    out: tuple[TensorType, TensorType],
) -> tuple[te.Tensor, te.Tensor]:
    extent, count = as_expr(source), out[0].shape[1]

    def place(i: Expr, k: Any) -> Expr:
        return te.cast(te.floor(coordinates[i]), "int64") + 1 - count // 2 + k

    def weight(i: Expr, k: Any) -> Expr:
        distance = as_double(place(i, k)) - coordinates[i]
        if antialias:
            distance = distance * te.minimum(as_double(numerator) / as_double(denominator), 1.0)
        raw = _weight(te, te.select, mode, cubic_a, distance)
        inside = te.all_of(place(i, k) >= 0, place(i, k) < extent)
        return te.select(inside, raw, as_double(0)) if exclude_outside else raw

    def inside(i: Expr, k: Expr) -> Expr:
        return held_inside(place(i, k), extent)

    places = te.compute(out[0].shape, inside, name="places")
    weights = te.compute(out[1].shape, weight, name="weights")
    if not (exclude_outside or antialias):
        return places, weights
    r = te.reduce_axis(count, name="r")

    def all_weights(i: Expr) -> Any:
        return te.sum(weight(i, r), axis=r)

    total = te.compute(out[1].shape[:1], all_weights, name="total")

    def share(i: Expr, k: Expr) -> Expr:
        return weights[i, k] / te.select(total[i] == as_double(0), as_double(1), total[i])

    return places, te.compute(out[1].shape, share, name="shares")


@op
def weighted_gather(x: Value, places: Value, weights: Value, *, axis: int) -> Type:
    """Along `axis`, for each row of places, the sum of the elements there times their weights."""
    require_kind("float", x)
    require_same_shape(places.shape, weights.shape, "places and weights")
    return x.tensor.with_shape([*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :]])


@weighted_gather.reference
def weighted_gather_reference(x: Array, places: Array, weights: Array, *, axis: int) -> Array:
    taken = np.take(x, places, axis)
    shape = [1] * taken.ndim
    shape[axis : axis + 2] = weights.shape
    return (taken * weights.reshape(shape)).sum(axis + 1, dtype=x.dtype)


@weighted_gather.compute
def weighted_gather_compute(
    x: te.Tensor, places: te.Tensor, weights: te.Tensor, *, axis: int, out: TensorType
) -> te.Tensor:
    count = known_dim(places.shape[1])

    def term(i: tuple[Expr, ...], k: Any) -> Expr:
        place = held_inside(places[i[axis], k], x.shape[axis])
        return x[(*i[:axis], place, *i[axis + 1 :])] * weights[i[axis], k]

    if count is None or count > _FEW:
        r = te.reduce_axis(places.shape[1], name="r")
        return te.compute(out.shape, lambda *i: te.sum(term(i, r), axis=r), name="weighted")

    def element(*i: Expr) -> Expr:
        total = term(i, 0)
        for k in range(1, count):
            total = total + term(i, k)
        return total

    return te.compute(out.shape, element, name="weighted")


@op
def fill_outside(x: Value, coordinates: Value, *, axis: int, source: Dim, value: float) -> Type:
    """`value` where the coordinate along `axis` lies beyond the ends of `source` elements."""
    require_same_shape(coordinates.shape, [x.shape[axis]], "coordinates and places")
    return x.type


@fill_outside.reference
def fill_outside_reference(
    x: Array, coordinates: Array, *, axis: int, source: int, value: float
) -> Array:
    outside = (coordinates < 0) | (coordinates > source - 1)
    shape = [1] * x.ndim
    shape[axis] = len(coordinates)
    return np.where(outside.reshape(shape), np.asarray(value).astype(x.dtype), x)


@fill_outside.compute
def fill_outside_compute(
    x: te.Tensor, coordinates: te.Tensor, *, axis: int, source: Dim, value: float
) -> te.Tensor:
    def element(*i: Expr) -> Expr:
        at = coordinates[i[axis]]
        outside = te.any_of(at < as_double(0), at > as_double(as_expr(source) - 1))
        return te.select(outside, te.cast(te.const(value, "float32"), x.dtype), x[i])

    return te.compute(x.shape, element, name="fill_outside")


weighted_gather.layouts(along_axis_layouts)
