"""Images sampled at arbitrary positions, and grids of such positions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_equal, require_same_shape
from tilewright.ir import Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: The first and the last element that are used, relative to the one below the position.
AROUND = {"nearest": (0, 0), "linear": (0, 1), "cubic": (-1, 2)}
#: Positions further away do not fit an integer.
_FAR: Final = 2.0**62
PADDINGS = ("zeros", "border", "reflection")
_A = -0.75

# ---- grid_sample --------------------------------------------------------------------------------


@op
def grid_sample(
    x: Value,
    grid: Value,
    *,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
) -> Type:
    """N×C×… images at the places that N×…×k grids name, from -1 to 1, the last dimension first.

    -1 and 1 are the middles of the border pixels (`align_corners`), or their outer edges. Beyond
    them there are zeros, the border, or the image mirrored. A coordinate that is not a number, or
    names no place that is one, counts as -1, as in ONNX Runtime.
    """
    require_kind("float", x, grid)
    rank = x.ndim - 2
    if rank < 1 or grid.ndim != x.ndim:
        raise UserError(f"{x} cannot be sampled by {grid}")
    _require_places(x, grid)
    if mode not in AROUND or padding not in PADDINGS:
        raise UserError(f"there is no sampling by {mode!r} with {padding!r} around")
    return x.tensor.with_shape([*x.shape[:2], *grid.shape[1:-1]])


def _require_places(x: Value, places: Value) -> None:
    require_equal(x.shape[0], places.shape[0], "the batches of images and of places")
    require_equal(places.shape[-1], x.ndim - 2, "the coordinates of a place and spatial axes")


@grid_sample.reference
def grid_sample_reference(
    x: Array, grid: Array, *, mode: str, padding: str, align_corners: bool
) -> Array:
    places = grid_places_reference(
        grid,
        extents=x.shape[2:],
        rounds=mode == "nearest",
        padding=padding,
        align_corners=align_corners,
    )
    return sample_at_reference(x, places, mode=mode, padding=padding, align_corners=align_corners)


def _placed(v: float, extent: int, padding: str, align: bool, rounds: bool) -> float:
    at = (v + 1) / 2 * (extent - 1) if align else ((v + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
    at = at if abs(at) < _FAR else low
    at = float(np.rint(np.float32(at))) if rounds else float(np.float32(at))
    if low <= at <= high or padding == "zeros":
        return at
    return min(max(at, 0.0), extent - 1.0) if padding == "border" else _mirrored(at, low, high)


def _mirrored(at: float, low: float, high: float) -> float:
    span = high - low
    if span == 0:
        return low
    reflections, rest = divmod(abs(at - low), span)
    return low + (rest if reflections % 2 == 0 else span - rest)


def _samples(at: float, mode: str) -> list[tuple[int, float]]:
    below = int(np.floor(at))
    part = at - below
    if mode == "nearest":
        return [(int(at), 1.0)]
    if mode == "linear":
        return [(below, 1 - part), (below + 1, part)]
    return [(below + k, _keys(abs(k - part))) for k in range(-1, 3)]


def _keys(d: float) -> float:
    if d <= 1:
        return (_A + 2) * d**3 - (_A + 3) * d**2 + 1
    return _A * d**3 - 5 * _A * d**2 + 8 * _A * d - 4 * _A


def _pixel(place: int, extent: int, padding: str, align: bool) -> int | None:
    if 0 <= place < extent:
        return place
    if padding == "zeros":
        return None
    if padding == "border":
        return min(max(place, 0), extent - 1)
    low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
    return int(_mirrored(place, low, high))


# ---- natively -----------------------------------------------------------------------------------


@grid_sample.decompose
def grid_sample_decompose(b: Any, x: Value, grid: Value, **how: Any) -> Value:
    wide = "float64" if x.dtype.name == "float64" else "float32"
    places = b.grid_places(
        b.cast(grid, dtype=wide),
        extents=x.shape[2:],
        rounds=how["mode"] == "nearest",
        padding=how["padding"],
        align_corners=how["align_corners"],
    )
    return b.cast(b.sample_at(b.cast(x, dtype=wide), places, **how), dtype=x.dtype)


@op
def grid_places(
    grid: Value, *, extents: Dims, rounds: bool, padding: str, align_corners: bool
) -> Type:
    """The places of a grid in pixels, the first dimension first; brought back from outside."""
    return grid.type


@grid_places.reference
def grid_places_reference(
    grid: Array, *, extents: Ints, rounds: bool, padding: str, align_corners: bool
) -> Array:
    out = np.empty_like(grid)
    for k, extent in enumerate(extents):
        for place in np.ndindex(*grid.shape[:-1]):
            value = float(grid[(*place, len(extents) - 1 - k)])
            out[(*place, k)] = _placed(value, extent, padding, align_corners, rounds)
    return out


@grid_places.compute
def grid_places_compute(
    grid: te.Tensor, *, extents: Dims, rounds: bool, padding: str, align_corners: bool
) -> te.Tensor:
    def place(k: int, value: Expr) -> Expr:
        extent = te.cast(as_expr(extents[k]), grid.dtype)
        middle = (value + 1.0) / 2.0 * (extent - 1.0)
        edge = ((value + 1.0) * extent - 1.0) / 2.0
        at = middle if align_corners else edge
        low, high = _ends(extent, align_corners)
        at = te.select(te.abs(at) < te.const(_FAR, grid.dtype), at, low)
        at = te.round(at) if rounds else at
        inside = te.all_of(at >= low, at <= high)
        back = {
            "zeros": lambda: at,
            "border": lambda: te.maximum(te.minimum(at, extent - 1.0), 0.0),
            "reflection": lambda: _reflected(at, low, high),
        }
        return te.select(inside, at, back[padding]())

    def element(*i: Expr) -> Expr:
        result: Expr = te.const(0, grid.dtype)
        for k in range(len(extents)):
            given = grid[(*i[:-1], len(extents) - 1 - k)]
            result = te.select(i[-1] == k, place(k, given), result)
        return result

    return te.compute(grid.shape, element, name="grid_places")


def _ends(extent: Expr, align_corners: bool) -> tuple[Expr, Expr]:
    half = te.const(0.0 if align_corners else 0.5, extent.dtype)
    return -half, extent - 1.0 + half


def _reflected(at: Expr, low: Expr, high: Expr) -> Expr:
    span = high - low
    distance = te.abs(at - low)
    reflections = te.floor(distance / span)
    rest = distance - reflections * span
    is_even = te.floor(reflections / 2.0) * 2.0 == reflections
    found = low + te.select(is_even, rest, span - rest)
    return te.select(span > 0.0, found, low)


@op
def sample_at(x: Value, places: Value, *, mode: str, padding: str, align_corners: bool) -> Type:
    """Images at places that are given in pixels."""
    _require_places(x, places)
    return x.tensor.with_shape([*x.shape[:2], *places.shape[1:-1]])


@sample_at.reference
def sample_at_reference(
    x: Array, places: Array, *, mode: str, padding: str, align_corners: bool
) -> Array:
    out = np.zeros((*x.shape[:2], *places.shape[1:-1]), np.float64)
    for index in np.ndindex(places.shape[:-1]):
        for corner in itertools.product(*(_samples(float(v), mode) for v in places[index])):
            extents = zip(corner, x.shape[2:], strict=True)
            pixel = [_pixel(p, e, padding, align_corners) for (p, _), e in extents]
            if None not in pixel:
                weight = np.prod([w for _, w in corner])
                image, every = index[0], slice(None)
                out[(image, every, *index[1:])] += weight * x[(image, every, *pixel)]
    return out.astype(x.dtype)


@sample_at.compute
def sample_at_compute(
    x: te.Tensor,
    places: te.Tensor,
    *,
    mode: str,
    padding: str,
    align_corners: bool,
    out: TensorType,
) -> te.Tensor:
    rank = x.ndim - 2
    first, last = AROUND[mode]

    def element(*i: Expr) -> Expr:
        at = [places[(i[0], *i[2:], k)] for k in range(rank)]
        below = [te.floor(v) for v in at]
        parts = [v - f for v, f in zip(at, below, strict=True)]
        total: Expr = te.const(0, x.dtype)
        for corner in itertools.product(range(first, last + 1), repeat=rank):
            weight = _product([_share(mode, p, k) for p, k in zip(parts, corner, strict=True)])
            steps = [te.cast(f, "int64") + k for f, k in zip(below, corner, strict=True)]
            total = total + _sampled(x, i[:2], steps, padding, align_corners) * weight
        return total

    return te.compute(out.shape, element, name="sample_at")


def _product(factors: Sequence[Expr]) -> Expr:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _share(mode: str, part: Expr, k: int) -> Expr:
    """The weight of the element `k` above the one below a position."""
    if mode == "nearest":
        return te.const(1, part.dtype)
    if mode == "linear":
        return part if k else 1.0 - part
    d = te.abs(part - float(k))
    if k in (0, 1):
        return ((_A + 2) * d - (_A + 3)) * d * d + 1.0
    return ((_A * d - 5 * _A) * d + 8 * _A) * d - 4 * _A


def _sampled(
    x: te.Tensor, image: tuple[Expr, ...], steps: list[Expr], padding: str, align_corners: bool
) -> Expr:
    extents = x.shape[2:]
    if padding == "reflection":
        ends = zip(steps, extents, strict=True)
        steps = [_reflected_pixel(s, n, align_corners) for s, n in ends]
    # Clamped, so that no check is needed; what was outside is zero, or the border.
    held = [te.maximum(te.minimum(s, n - 1), 0) for s, n in zip(steps, extents, strict=True)]
    pixel = x[(*image, *held)]
    if padding != "zeros":
        return pixel
    inside = [c for s, n in zip(steps, extents, strict=True) for c in (s >= 0, s < n)]
    return te.select(te.all_of(*inside), pixel, te.const(0, x.dtype))


def _reflected_pixel(step: Expr, extent: Expr, align_corners: bool) -> Expr:
    """A position mirrored at the centres, or at the outer edges, of the border pixels."""
    if align_corners:
        last = extent - 1
        phase = step % te.maximum(last * 2, 1)
        return last - te.abs(phase - last)
    phase = step % (extent * 2)
    return te.minimum(phase, extent * 2 - 1 - phase)


# ---- affine_grid --------------------------------------------------------------------------------


@op
def affine_grid(theta: Value, *, size: Dims, align_corners: bool = False) -> Type:
    """A grid over images of `size`, batches and channels apart, moved by each N×k×(k+1) matrix."""
    require_kind("float", theta)
    rank = len(size)
    if theta.ndim != 3:
        raise UserError(f"{theta} cannot move places of {rank} dimensions")
    require_same_shape(theta.shape[1:], [rank, rank + 1], "matrices and what they move")
    return theta.tensor.with_shape([theta.shape[0], *size, rank])


@affine_grid.reference
def affine_grid_reference(theta: Array, *, size: Ints, align_corners: bool) -> Array:
    lines = [_line(n, align_corners) for n in size]
    grids = [g.astype(np.float64) for g in np.meshgrid(*lines, indexing="ij")]
    points = np.stack([*grids[::-1], np.ones(size)], -1)
    return np.einsum("nij,...j->n...i", theta.astype(np.float64), points).astype(theta.dtype)


def _line(n: int, align_corners: bool) -> Array:
    if align_corners:
        return np.linspace(-1, 1, n)
    return (2 * np.arange(n) + 1) / n - 1


@affine_grid.compute
def affine_grid_compute(
    theta: te.Tensor, *, size: Dims, align_corners: bool, out: TensorType
) -> te.Tensor:
    rank = len(size)

    def along(k: int, i: tuple[Expr, ...]) -> Expr:
        place, extent = (te.cast(as_expr(v), theta.dtype) for v in (i[1 + k], size[k]))
        if not align_corners:
            return (place * 2.0 + 1.0) / extent - 1.0
        return place * 2.0 / te.maximum(extent - 1.0, 1.0) - 1.0

    def element(*i: Expr) -> Expr:
        total: Expr = theta[i[0], i[-1], rank]
        for k in range(rank):
            total = total + theta[i[0], i[-1], k] * along(rank - 1 - k, i)
        return total

    return te.compute(out.shape, element, name="affine_grid")
