"""Convolutions by 3×3 windows of stride 1 with fewer products (Winograd): tiles are transformed.

    winograd_tiles     N×(C/b)×H×W×b as t×t×N×tiles×(C/b)×b: windows of t×t pixels, transformed
    winograd_weights   O×C×3×3 as t×t×C×O, in NumPy: once, at compile time
    winograd_image     t×t×N×tiles×(O/c)×c back to N×(O/c)×H×W×c, with the bias

Between them each of the t×t planes is multiplied by its weights. Windows of t pixels give tiles of
m = t - 2, so that m×m results cost t×t products a channel in place of 9×m×m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.arith import simplify
from tilewright.graph.agreement import require_equal
from tilewright.graph.attributes import Dim, Ints
from tilewright.graph.elementwise import require_kind, require_same_dtype
from tilewright.graph.ir import Array, Value
from tilewright.graph.op import op
from tilewright.graph.types import TensorType, Type, known_dim
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
        """Polynomials are multiplied by their values at points and at infinity (Toom, Cook)."""
        others = [[q for q in points if q != p] for p in points]
        windows = [[*_with_roots(qs), 0.0] for qs in others]
        weights = [
            [p**k / prod(p - q for q in qs) for k in range(3)]
            for p, qs in zip(points, others, strict=True)
        ]
        tile = len(points) - 1
        results = [[*(p**k for p in points), float(k == tile - 1)] for k in range(tile)]
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


# ---- windows ------------------------------------------------------------------------------------


@op
def winograd_tiles(x: Value, *, pads: Ints, tile: int) -> Type:
    """The windows of an image with blocked channels, transformed; `pads` as for `conv`."""
    require_kind("float", x)
    _transform(tile)
    if x.ndim != 5 or len(pads) != 4:
        raise UserError(f"{x} is no image with blocked channels")
    tiles = [_tiles(places, tile) for places in _places(x.shape[2:4], pads)]
    batch, blocks, _, _, block = x.shape
    return TensorType(x.dtype, [tile + 2, tile + 2, batch, *tiles, blocks, block])


@winograd_tiles.reference
def winograd_tiles_reference(x: Array, *, pads: Ints, tile: int) -> Array:
    window = _window(x.shape[2:4], pads, tile)
    image = np.pad(x.astype("f8"), [(0, 0), (0, 0), *window.cut, (0, 0)])
    size = (tile + 2, tile + 2)
    every = np.lib.stride_tricks.sliding_window_view(image, size, axis=(2, 3))
    matrix = np.array(TRANSFORMS[tile].window)
    tiles = every[:, :, ::tile, ::tile]
    return np.einsum("ir,js,ncyxbrs->ijnyxcb", matrix, matrix, tiles, optimize=True).astype(x.dtype)


@winograd_tiles.compute
def winograd_tiles_compute(x: te.Tensor, *, pads: Ints, tile: int, out: TensorType) -> te.Tensor:
    image = _window(x.shape[2:4], pads, tile).padded(x)
    matrix = TRANSFORMS[tile].window
    size, _, batch, tall, _, blocks, block = out.shape
    shape = [size, batch, tall, image.shape[3], blocks, block]

    def row(i: Expr, n: Expr, ty: Expr, x: Expr, c: Expr, b: Expr) -> Expr:
        return _combined(_by_parity(matrix, lambda k: image[n, c, ty * tile + k, x, b]), i)

    rows = te.compute(shape, row, name="window_rows")

    def element(i: Expr, j: Expr, n: Expr, ty: Expr, tx: Expr, c: Expr, b: Expr) -> Expr:
        return _combined(_by_parity(matrix, lambda k: rows[i, n, ty, tx * tile + k, c, b]), j)

    return te.compute(out.shape, element, name="window_tiles")


def _window(spatial: Sequence[Any], pads: Ints, tile: int) -> Window:
    """The window over the image with pads after it that fill the last tile."""
    after: list[Dim] = []
    for extent, first, places in zip(spatial, pads, _places(spatial, pads), strict=False):
        whole = simplify(_tiles(places, tile) * tile + 2 - extent - first)
        number = known_dim(whole)
        after.append(whole if number is None else number)
    return Window.of((3, 3), (), (*pads[:2], *after), ())


def _places(spatial: Sequence[Any], pads: Ints) -> list[Expr]:
    """How many places a window has along each axis."""
    return Window.of((3, 3), (), pads, ()).places([as_expr(e) for e in spatial])


def _tiles(places: Any, tile: int) -> Expr:
    return simplify(te.floordiv(as_expr(places) + (tile - 1), tile))


# ---- weights ------------------------------------------------------------------------------------


def winograd_weights(weight: Array, tile: int) -> Array:
    """Weights O×C×3×3, transformed in float64: t×t×C×O."""
    matrix = np.array(TRANSFORMS[tile].weight)
    turned = weight.astype("f8").transpose(2, 3, 1, 0).reshape(3, -1)
    rows = (matrix @ turned).reshape(tile + 2, 3, -1)
    made = np.matmul(matrix, rows).astype(weight.dtype)
    return made.reshape(tile + 2, tile + 2, weight.shape[1], weight.shape[0])


# ---- results ------------------------------------------------------------------------------------


@op
def winograd_image(x: Value, bias: Value | None = None, *, height: Dim, width: Dim) -> Type:
    """The image of these extents that products of transformed windows and weights make."""
    require_kind("float", x)
    require_same_dtype(x, *([] if bias is None else [bias]))
    if x.ndim != 7 or known_dim(x.shape[0]) != known_dim(x.shape[1]):
        raise UserError(f"{x} holds no transformed tiles")
    size, _, batch, tall, wide, blocks, block = x.shape
    tile = _number(size) - 2
    _transform(tile)
    if bias is not None and (bias.shape != (blocks, block)):
        raise UserError(f"the bias is {bias}, the tiles are {x}")
    for tiles, extent in ((tall, height), (wide, width)):
        require_equal(tiles, _tiles(extent, tile), f"the tiles of {height}×{width} pixels")
    return TensorType(x.dtype, [batch, blocks, height, width, block])


@winograd_image.reference
def winograd_image_reference(x: Array, bias: Array | None, *, height: int, width: int) -> Array:
    matrix = np.array(TRANSFORMS[x.shape[0] - 2].result)
    tiles = np.einsum("ir,js,rsnyxob->noyixjb", matrix, matrix, x.astype("f8"), optimize=True)
    batch, blocks, tall, tile, wide, _, block = tiles.shape
    image = tiles.reshape(batch, blocks, tall * tile, wide * tile, block)[:, :, :height, :width]
    if bias is not None:
        image = image + bias[:, None, None, :]
    return np.ascontiguousarray(image.astype(x.dtype))


@winograd_image.compute
def winograd_image_compute(
    x: te.Tensor, bias: te.Tensor | None, *, height: Dim, width: Dim, out: TensorType
) -> te.Tensor:
    del height, width
    size, _, batch, tall, wide, blocks, block = x.shape
    tile = _number(size) - 2
    matrix = TRANSFORMS[tile].result

    def row(n: Expr, o: Expr, ty: Expr, tx: Expr, i: Expr, s: Expr, b: Expr) -> Expr:
        return _combined(_by_pairs(matrix, lambda k: x[k, s, n, ty, tx, o, b]), i)

    shape = [batch, blocks, tall, wide, tile]
    rows = te.compute([*shape, size, block], row, name="result_rows")

    def both(n: Expr, o: Expr, ty: Expr, tx: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        return _combined(_by_pairs(matrix, lambda k: rows[n, o, ty, tx, i, k, b]), j)

    tiles = te.compute([*shape, tile, block], both, name="result_tiles")

    def pixel(n: Expr, o: Expr, y: Expr, x: Expr, b: Expr) -> Expr:
        ty, tx, i, j = (f(e, tile) for f in (te.floordiv, te.floormod) for e in (y, x))
        value: Expr = tiles[n, o, ty, tx, i, j, b]
        return value if bias is None else value + bias[o, b]

    return te.compute(out.shape, pixel, name="winograd")


# ---- what they share ----------------------------------------------------------------------------


def _combined(rows: Sequence[Expr], position: Expr) -> Expr:
    """The one of `rows` that stands at `position`."""
    value = rows[-1]
    for k, other in reversed(list(enumerate(rows[:-1]))):
        value = te.select(position == k, other, value)
    return value


def _by_parity(matrix: Sequence[Sequence[float]], read: Callable[[int], Expr]) -> list[Expr]:
    """A matrix times a vector: even and odd columns apart, which are the same for points ±p.

    x⁴ ± p·x³ - q²·x² ∓ p·q²·x  =  (x⁴ - q²·x²) ± p·(x³ - q²·x)
    """
    return [_even_and_odd(row, read) for row in matrix]


def _even_and_odd(row: Sequence[float], read: Callable[[int], Expr]) -> Expr:
    even, odd = ([(k, f) for k, f in enumerate(row) if f and k % 2 == p] for p in (0, 1))
    if not even or not odd:
        return _sum(even or odd, read)
    last = odd[-1][1]
    return _sum(even, read) + _scaled(_sum([(k, f / last) for k, f in odd], read), last)


def _by_pairs(matrix: Sequence[Sequence[float]], read: Callable[[int], Expr]) -> list[Expr]:
    """A matrix times a vector: the columns of points ±p together, m₁ + m₂ or m₁ - m₂."""
    return [_pairs(row, read) for row in matrix]


def _pairs(row: Sequence[float], read: Callable[[int], Expr]) -> Expr:
    first, *between, last = row
    terms = [_scaled(read(0), first)] if first else []
    for k in range(0, len(between) - 1, 2):
        a, b = between[k : k + 2]
        assert abs(a) == abs(b)
        both = read(k + 1) + read(k + 2) if a == b else read(k + 1) - read(k + 2)
        terms.append(_scaled(both, a))
    if last:
        terms.append(_scaled(read(len(row) - 1), last))
    return _added(terms)


def _sum(terms: Sequence[tuple[int, float]], read: Callable[[int], Expr]) -> Expr:
    return _added([_scaled(read(k), f) for k, f in terms])


def _scaled(value: Expr, factor: float) -> Expr:
    return value if factor == 1 else value * float(factor)


def _added(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _transform(tile: int) -> Transform:
    if tile not in TRANSFORMS:
        raise UserError(f"there are no tiles of {tile} results", remedy="use 2 or 4")
    return TRANSFORMS[tile]


def _number(dim: Any) -> int:
    number = known_dim(dim)
    if number is None:
        raise UserError(f"the size {dim} must be known")
    return number
