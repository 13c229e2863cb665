"""Helpers for resizing along one axis: coordinates in the source, the nearest elements there.

Coordinates are computed in float64, so that ties between two elements are decided as by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import along_axis_layouts
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Expr, as_expr
from tilewright.tensor import te

# ---- coordinates --------------------------------------------------------------------------------


class Scaled(NamedTuple):
    """Numbers, arrays or expressions: position in the result, scale, extents of the source and of
    the result (`exact` before rounding), ends of the part that is resized."""

    place: Any
    scale: Any
    source: Any
    target: Any
    exact: Any
    start: Any
    end: Any


def _asymmetric(s: Scaled) -> Any:
    return s.place / s.scale


def _pixel_centre(s: Scaled) -> Any:
    return (s.place + 0.5) / s.scale


def _half_pixel(s: Scaled) -> Any:
    return _pixel_centre(s) - 0.5


def _symmetric(s: Scaled) -> Any:
    """The centre of the source is at the centre of the result."""
    return s.source / 2.0 * (1.0 - s.target / s.exact) + _half_pixel(s)


def _aligned(s: Scaled) -> Any:
    return s.place * (s.source - 1.0) / (s.exact - 1.0)


def _cropped(s: Scaled) -> Any:
    return s.start * (s.source - 1.0) + s.place * (s.end - s.start) * (s.source - 1.0) / (
        s.exact - 1.0
    )


def _cropped_to_one(s: Scaled) -> Any:
    return s.start * (s.source - 1.0) + (s.end - s.start) * (s.source - 1.0) / 2.0


def _zero(s: Scaled) -> Any:
    return s.place * 0.0


class Coordinates(NamedTuple):
    """The source coordinate of a position in the result; `one`: if the result has one element."""

    several: Callable[[Scaled], Any]
    one: Callable[[Scaled], Any]


COORDINATES: dict[str, Coordinates] = {
    "half_pixel": Coordinates(_half_pixel, _half_pixel),
    "half_pixel_symmetric": Coordinates(_symmetric, _symmetric),
    "pytorch_half_pixel": Coordinates(_half_pixel, _zero),
    "align_corners": Coordinates(_aligned, _zero),
    "asymmetric": Coordinates(_asymmetric, _asymmetric),
    "tf_half_pixel_for_nn": Coordinates(_pixel_centre, _pixel_centre),
    "tf_crop_and_resize": Coordinates(_cropped, _cropped_to_one),
}


@op
def resample_coordinates(
    roi: Value | None = None,
    *,
    source: Dim,
    target: Dim,
    numerator: Dim,
    denominator: Dim,
    mode: str,
    ends: Ints = (0, 0),
) -> Type:
    """For each of `target` places, where it lies among `source` elements.

    The scale is a quotient; `ends` says where `roi` has the ends of the part that is resized.
    """
    del roi
    return TensorType("float64", [target])


@resample_coordinates.reference
def resample_coordinates_reference(
    roi: Array | None,
    *,
    source: int,
    target: int,
    numerator: int,
    denominator: int,
    mode: str,
    ends: Ints,
) -> Array:
    scale = numerator / denominator
    exact = scale * source
    start, end = (0.0, 1.0) if roi is None else (float(roi[e]) for e in ends)
    scaled = Scaled(np.arange(target, dtype=np.float64), scale, source, target, exact, start, end)
    rule = COORDINATES[mode]
    with np.errstate(all="ignore"):
        return rule.one(scaled) + np.zeros(target) if exact == 1 else rule.several(scaled)


@resample_coordinates.compute
def resample_coordinates_compute(
    roi: te.Tensor | None,
    *,
    source: Dim,
    target: Dim,
    numerator: Dim,
    denominator: Dim,
    mode: str,
    ends: Ints,
    out: TensorType,
) -> te.Tensor:
    def element(i: Expr) -> Expr:
        scale = as_double(numerator) / as_double(denominator)
        exact = scale * as_double(source)
        start, end = (
            (as_double(0), as_double(1))
            if roi is None
            else (te.cast(roi[e], "float64") for e in ends)
        )
        scaled = Scaled(
            as_double(i), scale, as_double(source), as_double(target), exact, start, end
        )
        rule = COORDINATES[mode]
        return te.select(exact == as_double(1), rule.one(scaled), rule.several(scaled))

    return te.compute(out.shape, element, name="coordinates")


def as_double(value: Any) -> Expr:
    """A number in the type of coordinates."""
    return te.cast(as_expr(value), "float64")


# ---- the nearest element ------------------------------------------------------------------------

#: How a coordinate is rounded, in NumPy and as an expression; both have the same functions.
NEAREST: dict[str, Callable[[Any, Any], Any]] = {
    "round_prefer_floor": lambda m, x: m.ceil(x - 0.5),
    "round_prefer_ceil": lambda m, x: m.floor(x + 0.5),
    "floor": lambda m, x: m.floor(x),
    "ceil": lambda m, x: m.ceil(x),
}


@op
def nearest_gather(x: Value, coordinates: Value, *, axis: int, rounding: str) -> Type:
    """The slices of `x` along `axis` nearest to the coordinates."""
    return x.tensor.with_shape([*x.shape[:axis], *coordinates.shape, *x.shape[axis + 1 :]])


@nearest_gather.reference
def nearest_gather_reference(x: Array, coordinates: Array, *, axis: int, rounding: str) -> Array:
    places = NEAREST[rounding](np, coordinates).astype(np.int64)
    return np.take(x, np.clip(places, 0, x.shape[axis] - 1), axis)


@nearest_gather.compute
def nearest_gather_compute(
    x: te.Tensor, coordinates: te.Tensor, *, axis: int, rounding: str, out: TensorType
) -> te.Tensor:
    def element(*i: Expr) -> Expr:
        place = te.cast(NEAREST[rounding](te, coordinates[i[axis]]), "int64")
        return x[(*i[:axis], held_inside(place, x.shape[axis]), *i[axis + 1 :])]

    return te.compute(out.shape, element, name="nearest")


@op
def repeat_elements(x: Value, *, repeats: int, axis: int) -> Type:
    """Each element so many times in a row along `axis`."""
    axis = axis_of(axis, x.ndim)
    return x.tensor.with_shape(d * repeats if n == axis else d for n, d in enumerate(x.shape))


@repeat_elements.reference
def repeat_elements_reference(x: Array, *, repeats: int, axis: int) -> Array:
    return np.repeat(x, repeats, axis)


@repeat_elements.compute
def repeat_elements_compute(x: te.Tensor, *, repeats: int, axis: int, out: TensorType) -> te.Tensor:
    axis = axis_of(axis, x.ndim)

    def element(*i: Expr) -> Expr:
        return x[(*i[:axis], i[axis] // repeats, *i[axis + 1 :])]

    return te.compute(out.shape, element, name="repeat_elements")


def held_inside(place: Expr, extent: Expr) -> Expr:
    """A position, clamped to the tensor."""
    return te.maximum(te.minimum(place, extent - 1), 0)


for _op in (nearest_gather, repeat_elements):
    _op.layouts(along_axis_layouts)
