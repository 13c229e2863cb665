"""Convolutions by 3×3 windows of stride 1 with fewer products (Winograd): tiles are transformed.

    winograd_tiles     N×(C/b)×H×W×b as t×t×N×tiles×(C/b)×b: windows of t×t pixels, transformed
    winograd_weights   O×C×3×3 as t×t×C×O, in NumPy: once, at compile time
    winograd_image     t×t×N×tiles×(O/c)×c back to N×(O/c)×H×W×c, with the bias

Between them each of the t×t planes is multiplied by its weights. Windows of t pixels give tiles of
m = t - 2, so that m×m results cost t×t products a channel in place of 9×m×m.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.agreement import require_equal
from tilewright.graph.attributes import Dim, Ints
from tilewright.graph.elementwise import require_kind, require_same_dtype
from tilewright.graph.ir import Array, Value
from tilewright.graph.op import op
from tilewright.graph.transforms import (
    TRANSFORMS,
    by_pairs,
    by_parity,
    chosen,
    places_of,
    tiled_window,
    tiles_along,
    transform_of,
)
from tilewright.graph.types import TensorType, Type, known_dim
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- windows ------------------------------------------------------------------------------------


@op
def winograd_tiles(x: Value, *, pads: Ints, tile: int) -> Type:
    """The windows of an image with blocked channels, transformed; `pads` as for `conv`."""
    require_kind("float", x)
    transform_of(tile)
    if x.ndim != 5 or len(pads) != 4:
        raise UserError(f"{x} is no image with blocked channels")
    tiles = [tiles_along(places, tile) for places in places_of(x.shape[2:4], pads)]
    batch, blocks, _, _, block = x.shape
    return TensorType(x.dtype, [tile + 2, tile + 2, batch, *tiles, blocks, block])


@winograd_tiles.reference
def winograd_tiles_reference(x: Array, *, pads: Ints, tile: int) -> Array:
    window = tiled_window(x.shape[2:4], pads, tile)
    image = np.pad(x.astype("f8"), [(0, 0), (0, 0), *window.cut, (0, 0)])
    size = (tile + 2, tile + 2)
    every = np.lib.stride_tricks.sliding_window_view(image, size, axis=(2, 3))
    matrix = np.array(TRANSFORMS[tile].window)
    tiles = every[:, :, ::tile, ::tile]
    return np.einsum("ir,js,ncyxbrs->ijnyxcb", matrix, matrix, tiles, optimize=True).astype(x.dtype)


@winograd_tiles.compute
def winograd_tiles_compute(x: te.Tensor, *, pads: Ints, tile: int, out: TensorType) -> te.Tensor:
    image = tiled_window(x.shape[2:4], pads, tile).padded(x)
    matrix = TRANSFORMS[tile].window
    size, _, batch, tall, _, blocks, block = out.shape
    shape = [size, batch, tall, image.shape[3], blocks, block]

    def row(i: Expr, n: Expr, ty: Expr, x: Expr, c: Expr, b: Expr) -> Expr:
        return chosen(by_parity(matrix, lambda k: image[n, c, ty * tile + k, x, b]), i)

    rows = te.compute(shape, row, name="window_rows")

    def element(i: Expr, j: Expr, n: Expr, ty: Expr, tx: Expr, c: Expr, b: Expr) -> Expr:
        return chosen(by_parity(matrix, lambda k: rows[i, n, ty, tx * tile + k, c, b]), j)

    return te.compute(out.shape, element, name="window_tiles")


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
    transform_of(tile)
    if bias is not None and (bias.shape != (blocks, block)):
        raise UserError(f"the bias is {bias}, the tiles are {x}")
    for tiles, extent in ((tall, height), (wide, width)):
        require_equal(tiles, tiles_along(extent, tile), f"the tiles of {height}×{width} pixels")
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
        return chosen(by_pairs(matrix, lambda k: x[k, s, n, ty, tx, o, b]), i)

    shape = [batch, blocks, tall, wide, tile]
    rows = te.compute([*shape, size, block], row, name="result_rows")

    def both(n: Expr, o: Expr, ty: Expr, tx: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        return chosen(by_pairs(matrix, lambda k: rows[n, o, ty, tx, i, k, b]), j)

    tiles = te.compute([*shape, tile, block], both, name="result_tiles")

    def pixel(n: Expr, o: Expr, y: Expr, x: Expr, b: Expr) -> Expr:
        ty, tx, i, j = (f(e, tile) for f in (te.floordiv, te.floormod) for e in (y, x))
        value: Expr = tiles[n, o, ty, tx, i, j, b]
        return value if bias is None else value + bias[o, b]

    return te.compute(out.shape, pixel, name="winograd")


def _number(dim: Any) -> int:
    number = known_dim(dim)
    if number is None:
        raise UserError(f"the size {dim} must be known")
    return number
