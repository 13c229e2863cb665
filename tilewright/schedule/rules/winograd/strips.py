"""Winograd products by constants: rows and results are transformed a strip at a time.

    for strip of an image (parallel):
        pad and transform its rows
        for plane: for block of columns: for tile of rows:
            sums = rows × columns                                      all in registers
        for block of columns: transform the sums, tile by tile, with what follows

Intermediate results of a strip stay in the caches, however large the image is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.ir import Buffer, Const, Expr
from tilewright.schedule.error import RefusedError
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
    loops_within,
    stores_of,
)
from tilewright.schedule.rules.epilogue import vectorize_tile
from tilewright.schedule.rules.padding import padding_before, place_padding
from tilewright.schedule.rules.products.chunks import evenly_cut
from tilewright.schedule.rules.products.tiles import Tile
from tilewright.schedule.rules.rule import MOST, Choices, Rule
from tilewright.schedule.rules.winograd.positions import (
    cut_tiles,
    loops_over_images,
    source_order,
)
from tilewright.schedule.rules.winograd.transformed import (
    ProductShape,
    chain_after,
    chain_before,
    cut_steps,
    loop_over_blocks,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class ImageProduct(NamedTuple):
    """The blocks (the product, and chains of transforms before and after it), and the loops of the
    last one, which is cut into tiles on a copy of the schedule."""

    schedule: Schedule
    rows: list[str]
    product: str
    results: list[str]
    end: str
    #: Loops over images, over blocks of columns, over tiles down and across, and over vectors.
    images: list[Loop]
    block: Loop
    down: Loop
    across: list[Loop]
    vectors: Loop
    #: The number of tiles down and across, and the bytes of memory for each.
    tiles_down: int
    tiles_across: int
    tile_bytes: int
    shape: ProductShape


class StripsPlan(NamedTuple):
    """How such a product is computed: rows of tiles in a strip, and the register tile of sums."""

    found: ImageProduct
    rows: int
    tile: Tile


def _match(s: Schedule, _block: str, target: Target) -> ImageProduct | None:
    """The blocks of a function that is such a product and makes an image."""
    products = [b.name for b in s.blocks() if as_contraction(s.block_of(b)) is not None]
    if len(products) != 1:
        return None
    (product,) = products
    c = as_contraction(s.block_of(product))
    assert c is not None
    makers = {stores_of(s.block_of(b))[0].buffer: b.name for b in s.producers(product)}
    rows, (results, end) = chain_before(s, makers.get(c.a.buffer)), chain_after(s, product)
    if not rows or not results or end is None or c.b.buffer not in constants_of(s.function):
        return None
    s = s.copy()
    block = loop_over_blocks(s, product, product, results, end)
    outer = cut_tiles(s, results, end, target)
    at = outer.index(block)
    images, (*down_and_across, vectors) = outer[:at], outer[at + 1 :]
    if not down_and_across:
        raise RefusedError(f"{end} makes no image")
    down, *across = down_and_across
    own = s.block_of(product)
    *_, column = (it for it in own.iters if it.kind == "spatial")
    step = [it for it in own.iters if it.kind == "reduce"][-1]
    return ImageProduct(
        s,
        rows,
        product,
        results,
        end,
        images,
        block,
        down,
        across,
        vectors,
        _count(s, [down]),
        _count(s, across),
        _tile_bytes(c),
        ProductShape(c.out.buffer.dtype, None, extent_of(column), extent_of(step)),
    )


def _plan(found: ImageProduct, target: Target, choices: Choices) -> StripsPlan:
    """Strips that fit L2 and balance the cores."""
    row_bytes = found.tile_bytes * found.tiles_across
    own = evenly_cut(found.tiles_down, max(1, target.caches.l2 // row_bytes), target)
    others = (n for n in (own // 2, own * 2, own // 4, own * 4) if 0 < n <= found.tiles_down)
    rows = choices.choose("rows", (own, *others))
    shape = found.shape._replace(rows=rows * found.tiles_across)
    return StripsPlan(found, rows, choices.choose("tile", shape.tiles(target)[:MOST]))


def _schedule(s: Schedule, _block: str, plan: StripsPlan, target: Target) -> None:
    """Compute all blocks for one strip of tiles at a time."""
    found = plan.found
    s.restore(found.schedule)
    strip, within = s.split(found.down, None, plan.rows)
    s.reorder(*found.images, strip, found.block, within, *found.across, found.vectors)
    s.compute_at(found.product, strip)
    _cut_products(s, found.product, strip, plan.tile)
    s.compute_at(found.rows[-1], strip)
    chain, rows = found.rows[:-1], found.rows[-1]
    outer = source_order(s, chain, rows, cut_tiles(s, chain, rows, target, strip))
    s.reorder(*outer)
    own = loops_over_images(s, chain, rows, outer)
    place_padding(s, padding_before(s, found.rows[0]), (own or [strip])[-1], target)
    if target.cores > 1:
        s.parallel(s.fuse(*found.images, strip) if found.images else strip)


STRIPS = Rule("strips", _match, _plan, _schedule)


def _tile_bytes(c: Contraction) -> int:
    """Bytes of memory per tile: transformed windows, and products."""
    planes, steps, columns = (
        prod(extent_of(it) or 1 for it in iters) for iters in (c.batch, c.reduced, c.columns)
    )
    return planes * (steps + columns) * c.a.buffer.dtype.itemsize


def _count(s: Schedule, loops: Sequence[Loop]) -> int:
    """The number of iterations of a nest of loops."""
    extents = [s.loop_of(loop).extent for loop in loops]
    known = [int(e.value) for e in extents if isinstance(e, Const)]
    if len(known) < len(extents):
        raise RefusedError("the number of tiles is not known")
    return prod(known)


def _cut_products(s: Schedule, name: str, strip: Loop, tile: Tile) -> None:
    """Cut the product into register tiles of sums, with contiguous columns."""
    own = s.block_of(name)
    c = as_contraction(own)
    assert c is not None
    *_, row, column = (it for it in own.iters if it.kind == "spatial")
    steps = [it for it in own.iters if it.kind == "reduce"]
    _pack_columns(s, name, c.b.buffer, tile)
    copy = s.cache_write(name, 0, "local").name
    loops = loops_within(s, name, strip)
    depth = [loops.pop(it.var) for it in steps if it.var in loops]
    # A single tile of the image has no loop.
    rows, inside = list[Loop](), list[Loop]()
    if row.var in loops:
        rows, inside = ([x] for x in s.split(loops.pop(row.var), None, tile.rows))
    panel, vectors, lanes = s.split(loops.pop(column.var), None, tile.vectors, tile.lanes)
    blocks = [loop for v, loop in loops.items() if v is own.iters[0].var]
    planes = [loop for loop in loops.values() if loop not in blocks]
    depth, unrolled = cut_steps(s, depth, tile)
    s.reorder(*planes, *blocks, panel, *rows, *depth, *unrolled, *inside, vectors, lanes)
    for loop in (*unrolled, *inside, vectors):
        s.unroll(loop)
    s.vectorize(lanes)
    vectorize_tile(s, s.reverse_compute_at(copy, (rows or [panel])[-1]), tile.lanes)


def _pack_columns(s: Schedule, name: str, buffer: Buffer, tile: Tile) -> None:
    """Pack the columns of each tile contiguously; constants are packed only once."""
    copy = s.cache_read(name, buffer).name

    def packed(*indices: Expr) -> tuple[Expr, ...]:
        *planes, blocks, steps, column = indices
        return (*planes, column // tile.columns, blocks, steps, column % tile.columns)

    s.transform_layout(copy, 0, packed)
