"""Images and other tensors in another size, one axis after the other.

Along an axis, an element of the result has a coordinate in the source (`resample`): it is the
nearest element there, or a weighted sum of the elements around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Floats, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type, known_dim, product
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.image.resample import COORDINATES, NEAREST
from tilewright.graph.ops.image.resample_weights import RADIUS
from tilewright.graph.sizes.axes import axes_of, tidy
from tilewright.ir import Expr, as_expr, const, maximum, minimum
from tilewright.support.errors import UserError
from tilewright.support.errors import nearest as nearest_names

POLICIES = {"stretch": None, "not_larger": minimum, "not_smaller": maximum}
_CROP = "tf_crop_and_resize"


@op
def resize(
    x: Value,
    roi: Value | None = None,
    *,
    sizes: Dims | None = None,
    scales: Floats | None = None,
    axes: Ints | None = None,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    cubic_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation: float = 0.0,
    antialias: bool = False,
    policy: str = "stretch",
) -> Type:
    """`x` with other extents along the axes: of these sizes, or larger by these scales.

    mode            nearest, linear or cubic (Keys, with the parameter `cubic_a`)
    coordinates     how places of the result are mapped to places of `x`; see `resample.COORDINATES`
    nearest         which way the mode nearest rounds; see `resample.NEAREST`
    exclude_outside elements beyond the border have no weight, instead of being those at the border
    antialias       the weights are stretched where the result is smaller
    policy          sizes are bounds, and all axes get one scale: not_larger or not_smaller
    roi             for tf_crop_and_resize: the starts, then the ends of the part to resize; what
                    lies beyond `x` is `extrapolation`
    """
    _check(x, roi, mode, coordinates, nearest, policy, antialias)
    shape = list(x.shape)
    for axis in _plan(x.shape, sizes, scales, axes, policy):
        shape[axis.axis] = axis.target
    return x.tensor.with_shape(shape)


def _check(
    x: Value,
    roi: Value | None,
    mode: str,
    coordinates: str,
    nearest: str,
    policy: str,
    antialias: bool,
) -> None:
    known = {"mode": (mode, ["nearest", *RADIUS]), "coordinates": (coordinates, COORDINATES)}
    known |= {"nearest": (nearest, NEAREST), "policy": (policy, POLICIES)}
    for name, (given, names) in known.items():
        if given not in names:
            raise UserError(f"{name} is {given!r}", remedy=nearest_names(given, names))
    if coordinates == _CROP and roi is None:
        raise UserError(f"{_CROP} is not given the part to resize")
    if antialias and mode == "nearest":
        raise UserError("the nearest element has no weights that antialias could stretch")
    if mode != "nearest":
        require_kind("number", x)


# ---- the plan -----------------------------------------------------------------------------------


class ResizedAxis(NamedTuple):
    """One axis that is resized: its extents before and after, and its scale as a quotient."""

    axis: int
    source: Expr
    target: Expr
    numerator: Expr
    denominator: Expr


def _plan(
    shape: Sequence[Expr], sizes: Dims | None, scales: Floats | None, axes: Ints | None, policy: str
) -> list[ResizedAxis]:
    chosen = axes_of(axes, len(shape))
    given = scales if sizes is None else sizes
    if given is None or (sizes is not None and scales is not None) or len(given) != len(chosen):
        raise UserError(f"sizes or scales must be given, one for each of {len(chosen)} axes")
    extents = [shape[a] for a in chosen]
    if scales is not None and sizes is None:
        return [_scaled(a, n, s) for a, n, s in zip(chosen, extents, scales, strict=True)]
    targets = [as_expr(s) for s in sizes or ()]
    if policy != "stretch":
        return _with_one_scale(chosen, extents, targets, policy)
    return [ResizedAxis(a, n, m, m, n) for a, n, m in zip(chosen, extents, targets, strict=True)]


def _scaled(axis: int, extent: Expr, scale: float) -> ResizedAxis:
    if scale <= 0:
        raise UserError(f"a tensor cannot be larger by {scale}")
    exact = Fraction(scale)
    target = tidy(extent * exact.numerator // exact.denominator, extent)
    return ResizedAxis(axis, extent, target, const(exact.numerator), const(exact.denominator))


def _with_one_scale(
    axes: Sequence[int], extents: list[Expr], targets: list[Expr], policy: str
) -> list[ResizedAxis]:
    """The least (or greatest) scale for all, over a common denominator."""
    choose = POLICIES[policy]
    assert choose is not None
    below = product(extents)
    tops = [product([m, *extents[:k], *extents[k + 1 :]]) for k, m in enumerate(targets)]
    top = tops[0]
    for other in tops[1:]:
        top = choose(top, other)
    return [
        # Half up: floor(top / below * n + 1/2).
        ResizedAxis(a, n, tidy((top * n * 2 + below) // (below * 2)), tidy(top), below)
        for a, n in zip(axes, extents, strict=True)
    ]


# ---- natively -----------------------------------------------------------------------------------


@resize.decompose
def resize_decompose(
    b: Any,
    x: Value,
    roi: Value | None,
    *,
    sizes: Dims | None,
    scales: Floats | None,
    axes: Ints | None,
    policy: str,
    mode: str,
    coordinates: str,
    extrapolation: float,
    **how: Any,
) -> Value:
    plan = _plan(x.shape, sizes, scales, axes, policy)
    crops = coordinates == _CROP
    wide = "float64" if x.dtype.name == "float64" else "float32"
    result = x if mode == "nearest" else b.cast(x, dtype=wide)
    for number, axis in _in_order(plan):
        if axis.source is axis.target and axis.numerator is axis.denominator and not crops:
            continue
        at = b.resample_coordinates(
            roi if crops else None,
            source=axis.source,
            target=axis.target,
            numerator=axis.numerator,
            denominator=axis.denominator,
            mode=coordinates,
            ends=(number, len(plan) + number) if crops else (0, 0),
        )
        along = _nearest if mode == "nearest" else _weighted
        result = along(b, result, at, axis, mode=mode, coordinates=coordinates, **how)
        if crops:
            result = b.fill_outside(
                result, at, axis=axis.axis, source=axis.source, value=extrapolation
            )
    return result if mode == "nearest" else _converted(b, result, x)


def _in_order(plan: list[ResizedAxis]) -> list[tuple[int, ResizedAxis]]:
    """Axes that grow come last, inner ones before outer ones: resizing along an inner axis costs
    the most, and so is done while the tensor is small."""

    def cost(numbered: tuple[int, ResizedAxis]) -> tuple[bool, int]:
        axis = numbered[1]
        source, target = known_dim(axis.source), known_dim(axis.target)
        grows = source is None or target is None or target >= source
        return grows, -axis.axis if grows else axis.axis

    return sorted(enumerate(plan), key=cost)


def _nearest(b: Any, x: Value, at: Value, axis: ResizedAxis, **how: Any) -> Value:
    times = _whole_times(axis, how["coordinates"], how["nearest"])
    if times:
        return b.repeat_elements(x, repeats=times, axis=axis.axis)
    return b.nearest_gather(x, at, axis=axis.axis, rounding=how["nearest"])


def _whole_times(axis: ResizedAxis, coordinates: str, nearest: str) -> int:
    """How often each element is repeated, where that is the same for all; else 0."""
    top, bottom = known_dim(axis.numerator), known_dim(axis.denominator)
    if top is None or bottom is None or not bottom or top % bottom:
        return 0
    rounds = coordinates in ("half_pixel", "half_pixel_symmetric") and nearest.startswith("round")
    floors = coordinates == "asymmetric" and nearest == "floor"
    return top // bottom if rounds or floors else 0


def _weighted(b: Any, x: Value, at: Value, axis: ResizedAxis, **how: Any) -> Value:
    places, weights = b.resample_weights(
        at,
        source=axis.source,
        numerator=axis.numerator,
        denominator=axis.denominator,
        mode=how["mode"],
        cubic_a=how["cubic_a"],
        exclude_outside=how["exclude_outside"],
        antialias=how["antialias"],
    )
    return b.weighted_gather(x, places, b.cast(weights, dtype=x.dtype), axis=axis.axis)


def _converted(b: Any, result: Value, x: Value) -> Value:
    rounded = b.round(result) if x.dtype.is_integer else result
    return b.cast(rounded, dtype=x.dtype)


# ---- by NumPy -----------------------------------------------------------------------------------


@resize.reference
def resize_reference(
    x: Array,
    roi: Array | None,
    *,
    sizes: Ints | None,
    scales: Floats | None,
    axes: Ints | None,
    policy: str,
    mode: str,
    **how: Any,
) -> Array:
    chosen = axes_of(axes, x.ndim)
    factors, targets = _numbers(x, chosen, sizes, scales, policy)
    result = x if mode == "nearest" else x.astype(np.float64)
    for k, axis in enumerate(chosen):
        ends = (0.0, 1.0) if roi is None else (float(roi[k]), float(roi[len(chosen) + k]))
        line = _Line(x.shape[axis], targets[k], factors[k], *ends)
        same = line.source == line.target and line.scale == 1 and how["coordinates"] != _CROP
        result = result if same else line.resized(result, axis, mode, how)
    if mode == "nearest":
        return result
    if np.issubdtype(x.dtype, np.integer):
        info = np.iinfo(x.dtype)
        return np.clip(np.rint(result), info.min, info.max).astype(x.dtype)
    return result.astype(x.dtype)


def _numbers(
    x: Array, axes: Sequence[int], sizes: Ints | None, scales: Floats | None, policy: str
) -> tuple[list[float], list[int]]:
    extents = [x.shape[a] for a in axes]
    if scales is not None:
        return list(scales), [int(s * n) for s, n in zip(scales, extents, strict=True)]
    factors = [m / n for m, n in zip(sizes or (), extents, strict=True)]
    if policy == "stretch":
        return factors, list(sizes or ())
    scale = min(factors) if policy == "not_larger" else max(factors)
    return [scale] * len(axes), [int(scale * n + 0.5) for n in extents]


class _Line(NamedTuple):
    """One axis, resized element by element."""

    source: int
    target: int
    scale: float
    start: float
    end: float

    def coordinate(self, place: int, mode: str) -> float:
        exact, last = self.scale * self.source, self.source - 1.0
        middle = (place + 0.5) / self.scale - 0.5
        if exact == 1 and mode in ("align_corners", "pytorch_half_pixel"):
            return 0.0
        if mode == "align_corners":
            return place * last / (exact - 1)
        if mode == "asymmetric":
            return place / self.scale
        if mode == "half_pixel_symmetric":
            return self.source / 2 * (1 - self.target / exact) + middle
        if mode == "tf_half_pixel_for_nn":
            return (place + 0.5) / self.scale
        if mode == _CROP:
            step = 0.5 if exact == 1 else place / (exact - 1)
            return (self.start + step * (self.end - self.start)) * last
        return middle

    def resized(self, x: Array, axis: int, mode: str, how: dict[str, Any]) -> Array:
        rows = np.moveaxis(x, axis, 0)
        out = np.empty((self.target, *rows.shape[1:]), rows.dtype)
        for place in range(self.target):
            at = self.coordinate(place, how["coordinates"])
            if how["coordinates"] == _CROP and not 0 <= at <= self.source - 1:
                out[place] = how["extrapolation"]
            elif mode == "nearest":
                out[place] = rows[min(max(_rounded(at, how["nearest"]), 0), self.source - 1)]
            else:
                out[place] = self._sum(rows, at, mode, how)
        return np.moveaxis(out, 0, axis)

    def _sum(self, rows: Array, at: float, mode: str, how: dict[str, Any]) -> Array:
        stretch = min(1.0, self.scale) if how["antialias"] else 1.0
        reach = int(np.ceil(RADIUS[mode] / stretch)) + 1
        total, weights = np.zeros(rows.shape[1:]), 0.0
        for place in range(int(np.floor(at)) - reach, int(np.floor(at)) + reach + 1):
            if how["exclude_outside"] and not 0 <= place < self.source:
                continue
            weight = _kernel(abs(place - at) * stretch, mode, how["cubic_a"])
            total = total + weight * rows[min(max(place, 0), self.source - 1)]
            weights += weight
        return total / weights if how["antialias"] or how["exclude_outside"] else total


def _rounded(at: float, nearest: str) -> int:
    below = int(np.floor(at))
    part = at - below
    up = {
        "round_prefer_floor": part > 0.5,
        "round_prefer_ceil": part >= 0.5,
        "floor": False,
        "ceil": part > 0,
    }
    return below + up[nearest]


def _kernel(d: float, mode: str, a: float) -> float:
    if mode == "linear":
        return max(0.0, 1 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0
