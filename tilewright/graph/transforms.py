"""Transforms of windows, weights and results that save products (Toom, Cook, Winograd).

Windows of t pixels give tiles of m = t - 2 results of a convolution by 3: A((G w) · (B x)), with
matrices of numbers A, G and B. What is computed by them are sums, each place its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from tilewright.arith import simplify
from tilewright.graph.attributes import Dim, Ints
from tilewright.graph.types import known_dim
from tilewright.graph.windows import Window
from tilewright.ir import Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


class Transform(NamedTuple):
    """The matrices of one size of tiles: for windows, for weights, and for results."""

    window: Sequence[Sequence[float]]
    weight: Sequence[Sequence[float]]
    result: Sequence[Sequence[float]]

    @staticmethod
    def at(*points: float) -> Transform:
        """Polynomials are multiplied by their values at points and at infinity (Toom, Cook).

        What they are interpolated by is part of the results' matrix: that of the weights is then
        the cheapest, and they may be transformed again and again.
        """
        others = [[q for q in points if q != p] for p in points]
        windows = [[*_with_roots(qs), 0.0] for qs in others]
        weights = [[float(p) ** k for k in range(3)] for p in points]
        shares = [1 / prod(p - q for q in qs) for p, qs in zip(points, others, strict=True)]
        tile = len(points) - 1
        results = [
            [*(p**k * share for p, share in zip(points, shares, strict=True)), float(k == tile - 1)]
            for k in range(tile)
        ]
        return Transform([*windows, _with_roots(points)], [*weights, [0.0, 0.0, 1.0]], results)


def _with_roots(roots: Sequence[float]) -> list[float]:
    """The coefficients of the polynomial with these roots, the lowest first."""
    made = [1.0]
    for root in roots:
        made = [a - root * b for a, b in zip([0.0, *made], [*made, 0.0], strict=True)]
    return made


#: By how many results a tile has along an axis. Of the points whose powers are exact, those are
#: taken that round least: with 0, ±1 and ±2, errors are four times as large.
TRANSFORMS: Final = {2: Transform.at(0, 1, -1), 4: Transform.at(0, 0.75, -0.75, 1.5, -1.5)}


def transform_of(tile: int) -> Transform:
    """The matrices for tiles of so many results."""
    if tile not in TRANSFORMS:
        raise UserError(f"there are no tiles of {tile} results", remedy="use 2 or 4")
    return TRANSFORMS[tile]


# ---- tiles of images ----------------------------------------------------------------------------


def tiles_along(places: Any, tile: int) -> Expr:
    """How many tiles cover so many places."""
    return simplify(te.floordiv(as_expr(places) + (tile - 1), tile))


def places_of(spatial: Sequence[Any], pads: Ints) -> list[Expr]:
    """How many places a window has along each axis."""
    return Window.of((3, 3), (), pads, ()).places([as_expr(e) for e in spatial])


def tiled_window(spatial: Sequence[Any], pads: Ints, tile: int) -> Window:
    """The window over the image with pads after it that fill the last tile."""
    after: list[Dim] = []
    for extent, first, places in zip(spatial, pads, places_of(spatial, pads), strict=False):
        whole = simplify(tiles_along(places, tile) * tile + 2 - extent - first)
        number = known_dim(whole)
        after.append(whole if number is None else number)
    return Window.of((3, 3), (), (*pads[:2], *after), ())


# ---- for compute definitions --------------------------------------------------------------------


def chosen(rows: Sequence[Expr], position: Expr) -> Expr:
    """The one of `rows` that stands at `position`."""
    value = rows[-1]
    for k, other in reversed(list(enumerate(rows[:-1]))):
        value = te.select(position == k, other, value)
    return value


def by_parity(matrix: Sequence[Sequence[float]], read: Callable[[int], Expr]) -> list[Expr]:
    """A matrix times a vector: even and odd columns apart, which are the same for points ±p.

    x⁴ ± p·x³ - q²·x² ∓ p·q²·x  =  (x⁴ - q²·x²) ± p·(x³ - q²·x)
    """
    return [_even_and_odd(row, read) for row in matrix]


def _even_and_odd(row: Sequence[float], read: Callable[[int], Expr]) -> Expr:
    even, odd = ([(read(k), f) for k, f in enumerate(row) if f and k % 2 == p] for p in (0, 1))
    if not even or not odd:
        return _sum(even or odd)
    last = odd[-1][1]
    return _sum([(_sum(even), 1.0), (_sum([(x, f / last) for x, f in odd]), last)])


def by_pairs(matrix: Sequence[Sequence[float]], read: Callable[[int], Expr]) -> list[Expr]:
    """A matrix times a vector: the columns of points ±p together, m₁ + m₂ or m₁ - m₂."""
    return [_pairs(row, read) for row in matrix]


def _pairs(row: Sequence[float], read: Callable[[int], Expr]) -> Expr:
    first, *between, last = row
    terms = [(read(0), first), (read(len(row) - 1), last)]
    for k in range(0, len(between) - 1, 2):
        a, b = between[k : k + 2]
        assert abs(a) == abs(b)
        terms.append((read(k + 1) + read(k + 2) if a == b else read(k + 1) - read(k + 2), a))
    return _sum([(x, f) for x, f in terms if f])


def _sum(terms: Sequence[tuple[Expr, float]]) -> Expr:
    """What is not scaled comes first, so that products go together with sums."""
    (x, factor), *others = sorted(terms, key=lambda term: term[1] != 1)
    total = x if factor == 1 else x * factor
    for other, f in others:
        total = _added(total, other, f)
    return total


def _added(total: Expr, x: Expr, factor: float) -> Expr:
    if abs(factor) == 1:
        return total + x if factor == 1 else total - x
    return te.fma(x, factor, total)
