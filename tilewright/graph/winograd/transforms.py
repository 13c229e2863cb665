"""Transforms of windows, weights and results that save products (Toom, Cook, Winograd).

Windows of t pixels give tiles of m = t - r + 1 results of a convolution by r taps along an axis:
A((G w) · (B x)), with constant matrices A, G and B. The products by these are written out as sums
that differ by position. Longer kernels, and strided ones, are sums over groups of r taps, each of
which reads the image at an offset of its own (`Along`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import copysign, prod
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.ir import Array
from tilewright.graph.ir.attributes import Dim, Ints
from tilewright.graph.ir.types import known_dim
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


class Transform(NamedTuple):
    """The matrices for one size of tiles: for windows, for weights, and for results."""

    window: Sequence[Sequence[float]]
    weight: Sequence[Sequence[float]]
    result: Sequence[Sequence[float]]

    @staticmethod
    def at(points: Sequence[float], taps: int) -> Transform:
        """Polynomials are multiplied by their values at points and at infinity (Toom, Cook).

        The factors of the interpolation are in the results' matrix: the weights' matrix is then the
        cheapest, as weights may be transformed in every run.
        """
        others = [[q for q in points if q != p] for p in points]
        windows = [[*_with_roots(qs), 0.0] for qs in others]
        weights = [[float(p) ** k for k in range(taps)] for p in points]
        shares = [1 / prod(p - q for q in qs) for p, qs in zip(points, others, strict=True)]
        tile = len(points) + 2 - taps
        results = [
            [*(p**k * share for p, share in zip(points, shares, strict=True)), float(k == tile - 1)]
            for k in range(tile)
        ]
        last = [0.0] * (taps - 1) + [1.0]
        return Transform([*windows, _with_roots(points)], [*weights, last], results)


def _with_roots(roots: Sequence[float]) -> list[float]:
    """The coefficients of the polynomial with these roots, the lowest first."""
    made = [1.0]
    for root in roots:
        made = [a - root * b for a, b in zip([0.0, *made], [*made, 0.0], strict=True)]
    return made


#: By the number of planes. Of the points whose powers are exact, these round least: with 0, ±1 and
#: ±2, errors are four times as large.
_POINTS: Final = {
    1: (),
    4: (0, 1, -1),
    6: (0, 0.75, -0.75, 1.5, -1.5),
    8: (0, 0.5, -0.5, 1, -1, 1.75, -1.75),
}
#: Possible numbers of planes along an axis; `ALONE` along two axes would round too much.
PLANES: Final = tuple(_POINTS)[1:]
ALONE: Final = 8
#: The taps of the windows that most convolutions have.
TAPS: Final = 3


@cache
def transform_of(tile: int, taps: int = TAPS) -> Transform:
    """The matrices for tiles of `tile` results of `taps` taps."""
    if tile < 1 or taps < 1 or tile + taps - 1 not in _POINTS:
        raise UserError(
            f"there are no tiles of {tile} results of {taps} taps",
            remedy=f"use tiles and taps that make {', '.join(map(str, PLANES))} planes",
        )
    return Transform.at(_POINTS[tile + taps - 1], taps)


#: By the number of results of a tile along an axis, for three taps.
TRANSFORMS: Final = {tile: transform_of(tile) for tile in (2, 4)}


class Along(NamedTuple):
    """How a window is computed along one axis: every `step`-th of its taps, from `phase` on, in
    groups of `taps`, each of which gives tiles of `tile` results. The window moves by `step`."""

    kernel: int
    step: int
    taps: int
    tile: int
    phase: int = 0

    @property
    def planes(self) -> int:
        """Products for a tile and a group."""
        return self.tile + self.taps - 1

    @property
    def groups(self) -> int:
        return -(-(self.kernel - self.phase) // (self.step * self.taps))

    @property
    def matrices(self) -> Transform:
        return transform_of(self.tile, self.taps)

    def at(self, tile: Any, k: Any, group: Any) -> Any:
        """The k-th pixel in the window of a tile, in an image with its padding."""
        return (tile * self.tile + group * self.taps + k) * self.step + self.phase

    def reach(self, tiles: Any) -> Any:
        """How many pixels are read for this many tiles."""
        return self.at(tiles - 1, self.planes - 1, self.groups - 1) + 1

    def grouped(self, weight: Array, axis: int) -> Array:
        """Weights with an axis for groups before that of the taps; zeros fill the last group."""
        count = self.groups * self.taps
        own = np.take(weight, range(self.phase, self.kernel, self.step), axis)
        room = [(0, 0)] * weight.ndim
        room[axis] = (0, count - own.shape[axis])
        shape = (*weight.shape[:axis], self.groups, self.taps, *weight.shape[axis + 1 :])
        return np.pad(own, room).reshape(shape)


def both_axes(*parts: Ints) -> tuple[Along, Along]:
    """The two axes of an image, from the attributes of operators."""
    if any(len(part) != 2 for part in parts):
        raise UserError(f"there are {parts}, not two of each: one for each axis")
    down, across = (Along(*numbers) for numbers in zip(*parts, strict=True))
    return down, across


# ---- tiles of images ----------------------------------------------------------------------------


def tiles_along(places: Any, tile: int) -> Expr:
    """How many tiles cover this many results."""
    return simplify_size(te.floordiv(as_expr(places) + (tile - 1), tile))


def places_of(
    spatial: Sequence[Any], pads: Ints, kernel: Ints = (TAPS, TAPS), strides: Ints = ()
) -> list[Expr]:
    """The number of positions of a window along each axis."""
    return Window.of(kernel, strides, pads, ()).places([as_expr(e) for e in spatial])


def square(tile: int) -> tuple[Along, Along]:
    """3×3 windows of stride 1."""
    axis = Along(TAPS, 1, TAPS, tile)
    return axis, axis


def tiled_window(spatial: Sequence[Any], pads: Ints, axes: Sequence[Along]) -> Window:
    """The window over the image, with padding at the end that fills the last tile."""
    kernel, strides = (tuple(n) for n in zip(*((a.kernel, a.step) for a in axes), strict=True))
    places = places_of(spatial, pads, kernel, strides)
    after: list[Dim] = []
    for extent, first, count, axis in zip(spatial, pads, places, axes, strict=False):
        whole = simplify_size(axis.reach(tiles_along(count, axis.tile)) - extent - first)
        number = known_dim(whole)
        # Pixels behind the last step are not read.
        after.append(whole if number is None else max(0, number))
    return Window.of(kernel, strides, (*pads[:2], *after), ())


# ---- for compute definitions --------------------------------------------------------------------


def chosen(rows: Sequence[Expr], position: Expr) -> Expr:
    """The element of `rows` at `position`."""
    value = rows[-1]
    for k, other in reversed(list(enumerate(rows[:-1]))):
        value = te.select(position == k, other, value)
    return value


def by_parity(matrix: Sequence[Sequence[float]], read: Callable[[int], Expr]) -> list[Expr]:
    """A matrix times a vector, by sums over even and odd columns, which the points ±p share.

    x⁴ ± p·x³ - q²·x² ∓ p·q²·x  =  (x⁴ - q²·x²) ± p·(x³ - q²·x)
    """
    return [_even_and_odd(row, read) for row in matrix]


def _even_and_odd(row: Sequence[float], read: Callable[[int], Expr]) -> Expr:
    even, odd = ([(read(k), f) for k, f in enumerate(row) if f and k % 2 == p] for p in (0, 1))
    if not even or not odd:
        return _sum(even or odd)
    # Sums and differences of the same two: no value is overwritten that is needed again.
    sign = copysign(1.0, odd[-1][1])
    return _sum([(_sum(even), 1.0), (_sum([(x, f * sign) for x, f in odd]), sign)])


def by_pairs(matrix: Sequence[Sequence[float]], read: Callable[[int], Expr]) -> list[Expr]:
    """A matrix times a vector: the columns of points ±p combined, m₁ + m₂ or m₁ - m₂."""
    return [_pairs(row, read) for row in matrix]


def _pairs(row: Sequence[float], read: Callable[[int], Expr]) -> Expr:
    if len(row) == 1:
        return _sum([(read(0), row[0])])
    first, *between, last = row
    terms = [(read(0), first), (read(len(row) - 1), last)]
    for k in range(0, len(between), 2):
        a, b = between[k : k + 2]
        assert abs(a) == abs(b)
        terms.append((read(k + 1) + read(k + 2) if a == b else read(k + 1) - read(k + 2), a))
    return _sum([(x, f) for x, f in terms if f])


def _sum(terms: Sequence[tuple[Expr, float]]) -> Expr:
    """The terms without a factor come first, so that the others are fused multiply-adds."""
    (x, factor), *others = sorted(terms, key=lambda term: term[1] != 1)
    total = x if factor == 1 else x * factor
    for other, f in others:
        total = _added(total, other, f)
    return total


def _added(total: Expr, x: Expr, factor: float) -> Expr:
    if abs(factor) == 1:
        return total + x if factor == 1 else total - x
    return te.fma(x, factor, total)
