"""Convolutions by 3×3 windows of stride 1 with fewer products, each in one kernel.

    winograd_conv      N×(C/b)×H×W×b by weights (O/c)×(C/b)×b×3×3×c: N×(O/c)×H×W×c
    winograd_strips    the same by transformed weights: t×t×(O/c)×(C/b)×b×c

Windows, weights and products are transformed as by the operators of `winograd_planes`. The first
operator transforms weights where they are used, a block of channels at a time, so that they take no
more memory than those of direct convolution: that pays where there are few tiles and many channels.
The second is for large images: all steps are computed for one strip of tiles at a time, in caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.forms.blocked import blocked_array, unblocked_array
from tilewright.graph.ops.neural.conv import conv
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.graph.winograd.transforms import (
    Transform,
    by_pairs,
    by_parity,
    chosen,
    places_of,
    square,
    tiled_window,
    tiles_along,
    transform_of,
)
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def winograd_conv(
    x: Value, weight: Value, bias: Value | None = None, *, pads: Ints, tile: int
) -> Type:
    """The convolution of an image of known extents with blocked channels; `pads` as for `conv`."""
    require_kind("float", x)
    require_same_dtype(x, weight, *([] if bias is None else [bias]))
    transform_of(tile)
    _require_image(x, pads)
    inputs = (x.shape[1], x.shape[4])
    if weight.ndim != 6 or weight.shape[1:3] != inputs or weight.shape[3:5] != (3, 3):
        raise UserError(f"{weight} holds no 3×3 weights for {x}")
    return _image_type(x, pads, bias, weight.shape[0], weight.shape[5])


@winograd_conv.reference
def winograd_conv_reference(
    x: Array, weight: Array, bias: Array | None, *, pads: Ints, tile: int
) -> Array:
    del tile
    plain = unblocked_array(unblocked_array(weight.transpose(0, 1, 3, 4, 2, 5), 0), 1)
    attrs = {"strides": (), "pads": tuple(pads), "dilations": (), "groups": 1}
    flat = None if bias is None else bias.reshape(-1)
    (image,) = conv.evaluate([unblocked_array(x, 1), plain, flat], attrs)
    return blocked_array(image, 1, weight.shape[-1])


@winograd_conv.compute
def winograd_conv_compute(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    *,
    pads: Ints,
    tile: int,
    out: TensorType,
) -> te.Tensor:
    made = transform_of(tile)
    windows = _windows(x, pads, made, together=True)
    sums = _products_by_blocks(windows, _factors(weight, made))
    return _image(_results(sums, made), bias, out)


@op
def winograd_strips(x: Value, factors: Value, bias: Value | None = None, *, pads: Ints) -> Type:
    """The convolution of an image of known extents by transformed weights; `pads` as for `conv`."""
    require_kind("float", x)
    require_same_dtype(x, factors, *([] if bias is None else [bias]))
    _require_image(x, pads)
    if factors.ndim != 6 or factors.shape[3:5] != (x.shape[1], x.shape[4]):
        raise UserError(f"{factors} holds no transformed weights for {x}")
    transform_of((known_dim(factors.shape[0]) or 0) - 2)
    return _image_type(x, pads, bias, factors.shape[2], factors.shape[5])


@winograd_strips.reference
def winograd_strips_reference(x: Array, factors: Array, bias: Array | None, *, pads: Ints) -> Array:
    window, _, result = map(np.array, transform_of(factors.shape[0] - 2))
    tile = len(result)
    places = [int(p) for p in map(known_dim, places_of(x.shape[2:4], pads)) if p is not None]
    around = tiled_window(x.shape[2:4], pads, square(tile)).cut
    image = np.pad(x.astype("f8"), [(0, 0), (0, 0), *around, (0, 0)])
    every = np.lib.stride_tricks.sliding_window_view(image, (tile + 2, tile + 2), axis=(2, 3))
    tiles = every[:, :, ::tile, ::tile]
    windows = np.einsum("ir,js,ncyxbrs->ijnyxcb", window, window, tiles, optimize=True)
    sums = np.einsum("ijnyxcb,ijocbe->ijnoyxe", windows, factors.astype("f8"), optimize=True)
    made = np.einsum("ri,sj,ijnoyxe->noyrxse", result, result, sums, optimize=True)
    batch, outer, tall, _, wide, _, inner = made.shape
    whole = made.reshape(batch, outer, tall * tile, wide * tile, inner)
    inside = whole[:, :, : places[0], : places[1]]
    shifted = inside if bias is None else inside + bias[:, None, None, :]
    return np.ascontiguousarray(shifted.astype(x.dtype))


@winograd_strips.compute
def winograd_strips_compute(
    x: te.Tensor, factors: te.Tensor, bias: te.Tensor | None, *, pads: Ints, out: TensorType
) -> te.Tensor:
    made = transform_of((known_dim(factors.shape[0]) or 0) - 2)
    sums = _products(_windows(x, pads, made, together=False), factors)
    return _image(_results(sums, made), bias, out)


# ---- what they share ----------------------------------------------------------------------------


def _require_image(x: Value, pads: Ints) -> None:
    if x.ndim != 5 or len(pads) != 4 or any(known_dim(d) is None for d in x.shape[2:4]):
        raise UserError(f"{x} is no image of known extents with blocked channels")


def _image_type(x: Value, pads: Ints, bias: Value | None, outer: Expr, inner: Expr) -> Type:
    if bias is not None and bias.shape != (outer, inner):
        raise UserError(f"the bias is {bias}, for {outer} blocks of {inner} channels")
    return TensorType(x.dtype, [x.shape[0], outer, *places_of(x.shape[2:4], pads), inner])


def _image(tiles: te.Tensor, bias: te.Tensor | None, out: TensorType) -> te.Tensor:
    tile = known_dim(tiles.shape[3]) or 1
    wide = tiles_along(out.shape[3], tile)

    def pixel(n: Expr, o: Expr, y: Expr, x: Expr, b: Expr) -> Expr:
        ty, tx, i, j = (f(e, tile) for f in (te.floordiv, te.floormod) for e in (y, x))
        value: Expr = tiles[n, o, ty * wide + tx, i, j, b]
        return value if bias is None else value + bias[o, b]

    return te.compute(out.shape, pixel, name="winograd")


def _windows(x: te.Tensor, pads: Ints, made: Transform, *, together: bool) -> te.Tensor:
    """t×t×N×tiles×(C/b)×b, or (C/b)×t×t×N×tiles×b: the windows of a block of channels together."""
    tile = len(made.result)
    image = tiled_window(x.shape[2:4], pads, square(tile)).padded(x)
    tall, wide = (tiles_along(p, tile) for p in places_of(x.shape[2:4], pads))
    (batch, blocks, *_, block), size, count = x.shape, tile + 2, simplify_size(tall * wide)

    def row(c: Expr, n: Expr, t: Expr, i: Expr, k: Expr, b: Expr) -> Expr:
        y, x = te.floordiv(t, wide) * tile, te.floormod(t, wide) * tile + k
        return chosen(by_parity(made.window, lambda r: image[n, c, y + r, x, b]), i)

    rows = te.compute([blocks, batch, count, size, size, block], row, name="window_rows")

    def element(c: Expr, i: Expr, j: Expr, n: Expr, t: Expr, b: Expr) -> Expr:
        return chosen(by_parity(made.window, lambda k: rows[c, n, t, i, k, b]), j)

    def planes_first(i: Expr, j: Expr, n: Expr, t: Expr, c: Expr, b: Expr) -> Expr:
        return element(c, i, j, n, t, b)

    planes = [size, size, batch, count]
    if together:
        return te.compute([blocks, *planes, block], element, name="windows")
    return te.compute([*planes, blocks, block], planes_first, name="windows")


def _factors(weight: te.Tensor, made: Transform) -> te.Tensor:
    """(O/c)×(C/b)×t×t×b×c."""
    outer, blocks, block, *_, inner = weight.shape
    size = len(made.weight)

    def row(o: Expr, c: Expr, i: Expr, k: Expr, b: Expr, e: Expr) -> Expr:
        return chosen(by_parity(made.weight, lambda r: weight[o, c, b, r, k, e]), i)

    rows = te.compute([outer, blocks, size, 3, block, inner], row, name="factor_rows")

    def element(o: Expr, c: Expr, i: Expr, j: Expr, b: Expr, e: Expr) -> Expr:
        return chosen(by_parity(made.weight, lambda k: rows[o, c, i, k, b, e]), j)

    return te.compute([outer, blocks, size, size, block, inner], element, name="factors")


def _products(windows: te.Tensor, factors: te.Tensor) -> te.Tensor:
    """(O/c)×t×t×N×tiles×c."""
    size, _, batch, count, blocks, block = windows.shape
    _, _, outer, *_, inner = factors.shape
    c, b = te.reduce_axis(blocks, name="c"), te.reduce_axis(block, name="b")

    def element(o: Expr, i: Expr, j: Expr, n: Expr, t: Expr, e: Expr) -> Any:
        return te.sum(windows[i, j, n, t, c, b] * factors[i, j, o, c, b, e], axis=[c, b])

    return te.compute([outer, size, size, batch, count, inner], element, name="products")


def _products_by_blocks(windows: te.Tensor, factors: te.Tensor) -> te.Tensor:
    """(O/c)×t×t×N×tiles×c: sums over the blocks of channels of sums over a block."""
    blocks, size, _, batch, count, block = windows.shape
    outer, *_, inner = factors.shape
    b, c = te.reduce_axis(block, name="b"), te.reduce_axis(blocks, name="c")

    def part(o: Expr, c: Expr, i: Expr, j: Expr, n: Expr, t: Expr, e: Expr) -> Any:
        return te.sum(windows[c, i, j, n, t, b] * factors[o, c, i, j, b, e], axis=[b])

    shape = [size, size, batch, count, inner]
    parts = te.compute([outer, blocks, *shape], part, name="parts")

    def total(o: Expr, i: Expr, j: Expr, n: Expr, t: Expr, e: Expr) -> Any:
        return te.sum(parts[o, c, i, j, n, t, e], axis=[c])

    return te.compute([outer, *shape], total, name="products")


def _results(products: te.Tensor, made: Transform) -> te.Tensor:
    """N×(O/c)×tiles×m×m×c."""
    outer, size, _, batch, count, inner = products.shape
    tile = len(made.result)

    def row(n: Expr, o: Expr, t: Expr, i: Expr, k: Expr, e: Expr) -> Expr:
        return chosen(by_pairs(made.result, lambda r: products[o, r, k, n, t, e]), i)

    rows = te.compute([batch, outer, count, tile, size, inner], row, name="result_rows")

    def both(n: Expr, o: Expr, t: Expr, i: Expr, j: Expr, e: Expr) -> Expr:
        return chosen(by_pairs(made.result, lambda k: rows[n, o, t, i, k, e]), j)

    return te.compute([batch, outer, count, tile, tile, inner], both, name="result_tiles")
