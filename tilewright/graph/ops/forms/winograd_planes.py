"""Convolutions with fewer products (Winograd): operators that transform tiles of images.

    winograd_tiles     N×(C/b)×H×W×b as t×u×N×tiles×groups×(C/b)×b: transformed windows
    winograd_weights   kernel×C×O as t×u×groups×C×O, in NumPy: once, at compile time
    winograd_image     t×u×N×tiles×(O/c)×c back to N×(O/c)×H×W×c, with the bias

In between, each of the t×u planes is multiplied by its weights, over all groups and channels.
Windows of t pixels give tiles of m = t - r + 1 results of r taps along an axis, so that m×m results
of 3×3 taps cost t×t products per channel instead of 9×m×m. Longer kernels, and strided ones, are
split into groups of r taps (`transforms.Along`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.sizes.agreement import require_equal
from tilewright.graph.winograd.transforms import (
    Along,
    both_axes,
    by_pairs,
    by_parity,
    chosen,
    places_of,
    tiled_window,
    tiles_along,
    transform_of,
)
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: Multiplications for which NumPy's BLAS does not use its threads: synchronizing these would take
#: longer than the work. This many columns in float64 stay in the caches as well.
_AT_ONCE = 1 << 18

# ---- windows ------------------------------------------------------------------------------------


@op
def winograd_tiles(
    x: Value,
    *,
    pads: Ints,
    tiles: Ints,
    kernel: Ints = (3, 3),
    taps: Ints = (3, 3),
    strides: Ints = (1, 1),
    phases: Ints = (0, 0),
) -> Type:
    """The windows of an image with blocked channels, transformed; `kernel`, `strides` and `pads` as
    for `conv`. Of the taps, those that lie whole strides after `phases` are taken, in groups of
    `taps`, for tiles of `tiles` results."""
    require_kind("float", x)
    axes = both_axes(kernel, strides, taps, tiles, phases)
    for axis in axes:
        transform_of(axis.tile, axis.taps)
    if x.ndim != 5 or len(pads) != 4:
        raise UserError(f"{x} is no image with blocked channels")
    places = places_of(x.shape[2:4], pads, kernel, strides)
    counts = [tiles_along(p, axis.tile) for p, axis in zip(places, axes, strict=True)]
    planes, groups = ([getattr(a, name) for a in axes] for name in ("planes", "groups"))
    batch, blocks, _, _, block = x.shape
    return TensorType(x.dtype, [*planes, batch, *counts, *groups, blocks, block])


@winograd_tiles.reference
def winograd_tiles_reference(
    x: Array, *, pads: Ints, tiles: Ints, kernel: Ints, taps: Ints, strides: Ints, phases: Ints
) -> Array:
    axes = both_axes(kernel, strides, taps, tiles, phases)
    window = tiled_window(x.shape[2:4], pads, axes)
    image = np.pad(x.astype("f8"), [(0, 0), (0, 0), *window.cut, (0, 0)])
    places = map(known_dim, places_of(x.shape[2:4], pads, kernel, strides))
    down, across = (_pixels(a, -(-(p or 0) // a.tile)) for a, p in zip(axes, places, strict=True))
    # N×(C/b)×(tiles, groups, pixels) down×(tiles, groups, pixels) across×b
    read = image[:, :, down][..., across, :]
    matrices = (np.array(a.matrices.window) for a in axes)
    return np.einsum("ir,js,ncygrxhsb->ijnyxghcb", *matrices, read, optimize=True).astype(x.dtype)


def _pixels(axis: Along, tiles: int) -> Array:
    """The pixels that are read, as tiles×groups×planes."""
    tile, group, plane = np.ogrid[:tiles, : axis.groups, : axis.planes]
    return np.asarray(axis.at(tile, plane, group))


@winograd_tiles.compute
def winograd_tiles_compute(
    x: te.Tensor,
    *,
    pads: Ints,
    tiles: Ints,
    kernel: Ints,
    taps: Ints,
    strides: Ints,
    phases: Ints,
    out: TensorType,
) -> te.Tensor:
    down, across = both_axes(kernel, strides, taps, tiles, phases)
    image = tiled_window(x.shape[2:4], pads, (down, across)).padded(x)
    size, _, batch, tall, _, many, _, blocks, block = out.shape

    def row(i: Expr, n: Expr, ty: Expr, g: Expr, x: Expr, c: Expr, b: Expr) -> Expr:
        def read(k: int) -> Expr:
            return image[n, c, down.at(ty, k, g), x, b]

        return chosen(by_parity(down.matrices.window, read), i)

    # Along an axis without a transform, windows are single pixels.
    both = down.planes > 1 and across.planes > 1
    shape = [size, batch, tall, many, image.shape[3], blocks, block]
    rows = te.compute(shape, row, name="window_rows") if both else None

    def element(*at: Expr) -> Expr:
        i, j, n, ty, tx, g, h, c, b = at

        def read(k: int) -> Expr:
            place = across.at(tx, k, h)
            if rows is not None:
                return rows[i, n, ty, g, place, c, b]
            return row(i, n, ty, g, place, c, b)

        return chosen(by_parity(across.matrices.window, read), j)

    return te.compute(out.shape, element, name="window_tiles")


# ---- weights ------------------------------------------------------------------------------------


def winograd_weights(taps: Array, axes: Sequence[Along]) -> Array:
    """Weights kernel×C×O, transformed in float64: planes×groups×C×O."""
    down, across = axes
    grouped = across.grouped(down.grouped(taps, 0), 2)
    groups, high, many, wide, *channels = grouped.shape
    rows = np.moveaxis(grouped, (1, 3), (0, 1)).reshape(high * wide, -1)
    matrix = np.kron(*(np.array(a.matrices.weight) for a in axes))
    made = np.empty((len(matrix), rows.shape[1]), taps.dtype)
    step = max(1, _AT_ONCE // matrix.size)
    for start in range(0, rows.shape[1], step):
        part = slice(start, start + step)
        made[:, part] = matrix @ rows[:, part].astype("f8")
    return made.reshape(down.planes, across.planes, groups, many, *channels)


# ---- results ------------------------------------------------------------------------------------


@op
def winograd_image(
    x: Value,
    bias: Value | None = None,
    *,
    height: Dim,
    width: Dim,
    tiles: Ints,
    taps: Ints = (3, 3),
) -> Type:
    """The image of these extents that products of transformed windows and weights make."""
    require_kind("float", x)
    require_same_dtype(x, *([] if bias is None else [bias]))
    sizes = [m + r - 1 for m, r in zip(tiles, taps, strict=True)]
    if x.ndim != 7 or [known_dim(d) for d in x.shape[:2]] != sizes:
        raise UserError(f"{x} holds no transformed tiles of {list(tiles)} results")
    *_, batch, tall, wide, blocks, block = x.shape
    if bias is not None and (bias.shape != (blocks, block)):
        raise UserError(f"the bias is {bias}, the tiles are {x}")
    for count, extent, tile in ((tall, height, tiles[0]), (wide, width, tiles[1])):
        require_equal(count, tiles_along(extent, tile), f"the tiles of {height}×{width} pixels")
    return TensorType(x.dtype, [batch, blocks, height, width, block])


@winograd_image.reference
def winograd_image_reference(
    x: Array, bias: Array | None, *, height: int, width: int, tiles: Ints, taps: Ints
) -> Array:
    matrices = (np.array(transform_of(m, r).result) for m, r in zip(tiles, taps, strict=True))
    made = np.einsum("ir,js,rsnyxob->noyixjb", *matrices, x.astype("f8"), optimize=True)
    batch, blocks, tall, down, wide, across, block = made.shape
    image = made.reshape(batch, blocks, tall * down, wide * across, block)[:, :, :height, :width]
    if bias is not None:
        image = image + bias[:, None, None, :]
    return np.ascontiguousarray(image.astype(x.dtype))


@winograd_image.compute
def winograd_image_compute(
    x: te.Tensor,
    bias: te.Tensor | None,
    *,
    height: Dim,
    width: Dim,
    tiles: Ints,
    taps: Ints,
    out: TensorType,
) -> te.Tensor:
    del height, width
    down, across = (transform_of(m, r).result for m, r in zip(tiles, taps, strict=True))
    _, size, batch, tall, wide, blocks, block = x.shape

    def row(n: Expr, o: Expr, ty: Expr, tx: Expr, i: Expr, s: Expr, b: Expr) -> Expr:
        return chosen(by_pairs(down, lambda k: x[k, s, n, ty, tx, o, b]), i)

    both = len(down[0]) > 1 and len(across[0]) > 1
    shape = [batch, blocks, tall, wide, tiles[0]]
    rows = te.compute([*shape, size, block], row, name="result_rows") if both else None

    def result(n: Expr, o: Expr, ty: Expr, tx: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        def read(k: int) -> Expr:
            if rows is not None:
                return rows[n, o, ty, tx, i, k, b]
            return row(n, o, ty, tx, i, te.const(k, "int64"), b)

        return chosen(by_pairs(across, read), j)

    made = te.compute([*shape, tiles[1], block], result, name="result_tiles")

    def pixel(n: Expr, o: Expr, y: Expr, x: Expr, b: Expr) -> Expr:
        pairs = ((y, tiles[0]), (x, tiles[1]))
        ty, tx, i, j = (f(e, m) for f in (te.floordiv, te.floormod) for e, m in pairs)
        value: Expr = made[n, o, ty, tx, i, j, b]
        return value if bias is None else value + bias[o, b]

    return te.compute(out.shape, pixel, name="winograd")
