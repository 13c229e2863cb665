"""Products of transformed rows by constants, whose results are transformed: a strip at a time.

    for strip of an image (parallel):
        pad and transform its rows
        for plane: for block of columns: for tile of rows:
            sums = rows × columns                                      all in registers
        for block of columns: transform the sums, tile by tile, with what follows

What goes from one step to the next stays in the caches, however large the image is.
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
    stores_of,
)
from tilewright.schedule.rules.epilogue import vectorize_tile
from tilewright.schedule.rules.padding import padding_before, place_padding
from tilewright.schedule.rules.products.chunks import evenly_cut
from tilewright.schedule.rules.products.tiles import Tile
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.winograd.positions import (
    cut_tiles,
    loops_over_images,
    loops_within,
    walk_source,
)
from tilewright.schedule.rules.winograd.transformed import (
    chain_after,
    chain_before,
    cut_steps,
    loop_over_blocks,
    product_tile,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Strips(NamedTuple):
    """The blocks: chains of transforms, each of which reads the one before, and the product."""

    rows: list[str]
    product: str
    results: list[str]
    end: str


def _match(s: Schedule, _block: str, _target: Target) -> Strips | None:
    """The blocks of a function that is such a product, where it makes an image."""
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
    return Strips(rows, product, results, end)


def _schedule(s: Schedule, _block: str, found: Strips, target: Target) -> None:
    """Compute all of it for a strip of tiles at a time."""
    c = as_contraction(s.block_of(found.product))
    assert c is not None
    block = loop_over_blocks(s, found.product, found.product, found.results, found.end)
    outer = cut_tiles(s, found.results, found.end, target)
    at = outer.index(block)
    images, (*tall_and_wide, vectors) = outer[:at], outer[at + 1 :]
    if not tall_and_wide:
        raise RefusedError(f"{found.end} makes no image")
    tall, *across = tall_and_wide
    tiles, wide = _count(s, [tall]), _count(s, across)
    length = evenly_cut(tiles, max(1, target.caches.l2 // (_tile_bytes(c) * wide)), target.cores)
    strip, within = s.split(tall, None, length)
    s.reorder(*images, strip, block, within, *across, vectors)
    s.compute_at(found.product, strip)
    _cut_products(s, found, strip, length * wide, target)
    s.compute_at(found.rows[-1], strip)
    chain, rows = found.rows[:-1], found.rows[-1]
    outer = walk_source(s, chain, rows, cut_tiles(s, chain, rows, target, strip))
    own = loops_over_images(s, chain, rows, outer)
    place_padding(s, padding_before(s, found.rows[0]), (own or [strip])[-1], target)
    if target.cores > 1:
        s.parallel(s.fuse(*images, strip) if images else strip)


STRIPS = Rule("strips", _match, as_found, _schedule)


def _tile_bytes(c: Contraction) -> int:
    """What is in memory for each tile: transformed windows, and products."""
    planes, steps, columns = (
        prod(extent_of(it) or 1 for it in iters) for iters in (c.batch, c.reduced, c.columns)
    )
    return planes * (steps + columns) * c.a.buffer.dtype.itemsize


def _count(s: Schedule, loops: Sequence[Loop]) -> int:
    """How many iterations loops have together."""
    extents = [s.loop_of(loop).extent for loop in loops]
    known = [int(e.value) for e in extents if isinstance(e, Const)]
    if len(known) < len(extents):
        raise RefusedError("the number of tiles is not known")
    return prod(known)


def _cut_products(s: Schedule, found: Strips, strip: Loop, rows: int, target: Target) -> None:
    """Tiles of sums in registers, by columns that lie side by side."""
    own = s.block_of(found.product)
    c = as_contraction(own)
    assert c is not None
    *_, row, column = (it for it in own.iters if it.kind == "spatial")
    steps = [it for it in own.iters if it.kind == "reduce"]
    tile = product_tile(c.out.buffer.dtype, rows, column, steps[-1], target)
    _pack_columns(s, found.product, c.b.buffer, tile)
    copy = s.cache_write(found.product, 0, "local").name
    loops = loops_within(s, found.product, strip)
    depth = [loops.pop(it.var) for it in steps if it.var in loops]
    tiles, inside = s.split(loops.pop(row.var), None, tile.rows)
    panel, vectors, lanes = s.split(loops.pop(column.var), None, tile.vectors, tile.lanes)
    blocks = [loop for v, loop in loops.items() if v is own.iters[0].var]
    planes = [loop for loop in loops.values() if loop not in blocks]
    depth, unrolled = cut_steps(s, depth, tile)
    s.reorder(*planes, *blocks, panel, tiles, *depth, *unrolled, inside, vectors, lanes)
    for loop in (*unrolled, inside, vectors):
        s.unroll(loop)
    s.vectorize(lanes)
    vectorize_tile(s, s.reverse_compute_at(copy, tiles), tile.lanes)


def _pack_columns(s: Schedule, name: str, buffer: Buffer, tile: Tile) -> None:
    """The columns of a tile lie side by side; constants are packed once."""
    copy = s.cache_read(name, buffer).name

    def packed(*indices: Expr) -> tuple[Expr, ...]:
        *planes, blocks, steps, column = indices
        return (*planes, column // tile.columns, blocks, steps, column % tile.columns)

    s.transform_layout(copy, 0, packed)
