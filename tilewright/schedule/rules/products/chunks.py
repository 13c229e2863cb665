"""Chunks of rows that are packed together, and the rows of an image gathered into them.

for chunk (parallel):                           or, where there are few rows,
    for tile: for run of a row:                     for tile (parallel): gather
        for row of the tile: copy the run           for columns (parallel): for tile: …
    for columns: for tile: …

Within a tile, the first runs of all rows are followed by the second runs of all rows, and so on:
tiles read memory sequentially.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import TRUE, Const, Expr, Iter, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import extent_of
from tilewright.schedule.rules.elementwise import vectorize_innermost
from tilewright.schedule.rules.products.packing import avoid_conflicts
from tilewright.schedule.rules.products.tiles import Tile
from tilewright.schedule.rules.transpose import transpose_tiles, whole_tiles
from tilewright.schedule.rules.transpose_plan import TransposeTile
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Rows of at most this many vectors are stored as one run.
_FEW_VECTORS = 4
#: Two panels of columns may together be at most this multiple of L2's size.
_PANELS = 1.25
#: Threads take chunks of rows where every core gets at least this many tiles, else columns.
_SHARE = 4
#: Most parts per thread, fewest panels per part, and the largest allowed load imbalance (1.03: 3 %
#: over the mean).
_PARTS, _PART, _UNEVEN = 4, 6, 1.03


def tiles_that_fit(size: int, target: Target) -> int:
    """How many tiles of `size` bytes fit 5/8 of L2; columns are streamed through the rest."""
    return max(1, target.caches.l2 * 5 // 8 // max(1, size))


def evenly_cut(tiles: int, fit: int, target: Target, cores: int = 0) -> int:
    """How many tiles make a chunk, at most `fit`, so that cores (the target's, unless `cores` is
    given) have about the same work."""
    cores = cores or target.cores

    def cost(size: int) -> float:
        chunks = -(-tiles // size)
        return _busiest(tiles, size, cores) * (1 + target.timing.chunk_cost * chunks)

    return min(range(1, min(fit, -(-tiles // cores)) + 1), key=cost)


def even_parts(tiles: int, cores: int) -> int:
    """Into how many parts threads cut panels of columns: several per thread where the load stays
    balanced, so that others can take parts from a slow thread (`codegen.llvm.threadpool`)."""
    least = -(-tiles // cores)
    several = [cores * n for n in range(1, min(_PARTS, least // _PART) + 1)]
    even = [n for n in several if _busiest(tiles, -(-tiles // n), cores) <= least * _UNEVEN]
    return max(even, default=cores)


def _busiest(tiles: int, size: int, cores: int) -> int:
    """Tiles of the busiest core with chunks of this size."""
    chunks = -(-tiles // size)
    return min(tiles, -(-chunks // cores) * size)


class Chunks(NamedTuple):
    """Chunks of packed rows, each multiplied by all columns, panel by panel: the cost of memory.

    Each chunk reads every panel of columns from beyond L2 once; the panel stays in L2 while the
    tiles of the chunk use it. The rows of a chunk are read again for every panel, from L2 if they
    fit beside it.
    """

    tile: Tile
    #: Bytes per element, and steps of the reduction.
    itemsize: int
    depth: int
    target: Target

    def best(self, tiles: int, cores: int) -> int:
        """The best number of tiles in a chunk; 1 without an L2, which would have to hold more."""
        most = -(-tiles // cores) if self.target.caches.l2 else 1
        return min(range(1, most + 1), key=lambda n: self.cost(tiles, n, cores))

    def cost(self, tiles: int, size: int, cores: int) -> float:
        """Time of the busiest core, in units of a tile's time without memory stalls."""
        begun = self.target.timing.chunk_cost * -(-tiles // size)
        return _busiest(tiles, size, cores) * (1 + self.waits(size) + begun)

    def waits(self, size: int) -> float:
        """Stall time for data from beyond L2, as a fraction of the multiply-adds' time."""
        tile, timing, l2 = self.tile, self.target.timing, self.target.caches.l2
        columns, rows = tile.columns * self.itemsize, tile.rows * self.itemsize
        stays = size > 1 and 2 * columns * self.depth <= l2 * _PANELS
        far = columns / size if stays else float(columns)
        held = size * rows * self.depth + (2 * columns * self.depth if stays else 0)
        far += rows if held > l2 else 0
        cycles = tile.rows * tile.vectors / self.target.fma_ports
        return timing.far_share * far / cycles / timing.l3_bytes_per_cycle


class GatheredRows(NamedTuple):
    """Rows of a product that are gathered, and the bytes of each."""

    rows: int
    size: int
    target: Target

    def are_shared(self, tile: int) -> bool:
        """Whether threads take chunks of rows, in tiles of `tile` rows, rather than columns."""
        return self.rows >= _SHARE * self.target.cores * tile

    def tiles_per_chunk(self, tile: int) -> int:
        """How many tiles make a chunk."""
        tiles, fit = -(-self.rows // tile), tiles_that_fit(self.size * tile, self.target)
        # With few rows, one chunk of all of them: columns are then read from memory just once.
        return evenly_cut(tiles, fit, self.target) if self.are_shared(tile) else tiles

    def computed(self, tile: int) -> int:
        """The equivalent number of rows computed, counting rows past the end and idle threads."""
        size = self.tiles_per_chunk(tile)
        chunks = -(-self.rows // (size * tile))
        if self.are_shared(tile):
            chunks = -(-chunks // self.target.cores) * self.target.cores
        return chunks * size * tile


def transpose_rows(
    s: Schedule, copy: str, loops: Sequence[Loop], rows: int, square: TransposeTile
) -> tuple[Loop, Loop] | None:
    """Let the block `copy` pack a matrix of `rows` by squares, as far as whole ones cover it.

    Gives the loops over squares, along the rows and across them; None where a chunk may end within
    a square, or where not one square fits.
    """
    extents = [s.loop_of(loop).extent for loop in loops]
    sizes = [int(e.value) for e in extents if isinstance(e, Const)]
    if len(sizes) != 2 or len(loops) != 2 or sizes[0] < square.height or sizes[1] < square.width:
        return None
    if s.block_of(copy).predicate is not TRUE and rows % square.height:
        return None
    # Split each loop while it is the outer one, so that the whole squares stay a perfect nest.
    across, along = whole_tiles(s, loops[0], square.height), loops[1]
    s.reorder(along, across)
    _, along, across = transpose_tiles(s, whole_tiles(s, along, square.width), across, square)
    return along, across


def copy_tiles(
    s: Schedule, copy: str, loops: Sequence[Loop], tile: Tile, target: Target
) -> list[Loop]:
    """Let the block `copy` copy the rows of tiles next to each other, each row as a whole.

    Gives the loops down to the one over rows.
    """
    width = tile.rows

    def laid_out(*indices: Expr) -> tuple[Expr, ...]:
        *rest, row, step = indices
        return (row // width, *rest, row % width, step)

    s.transform_layout(copy, 0, laid_out)
    avoid_conflicts(s, copy, target)
    vectorize_innermost(s, copy, target)
    return list(loops[:-1])


def gather_tiles(s: Schedule, copy: str, axis: int, tile: Tile, chunk: Loop | None) -> list[Loop]:
    """Let the block `copy` gather rows (dimension `axis`) in tiles, in the loop `chunk`.

    Gives the loops down to the one over tiles.
    """
    width, lanes, run = tile.rows, tile.lanes, _run(s.block_of(copy).iters[-1], tile)

    def laid_out(*indices: Expr) -> tuple[Expr, ...]:
        *rest, step = (i for k, i in enumerate(indices) if k != axis)
        row = indices[axis]
        return (row // width, *rest, step // run, row % width, step % run)

    loops = s.loops(copy) if chunk is None else s.compute_at(copy, chunk)
    s.transform_layout(copy, 0, laid_out)
    along = free_vars(s.block_of(copy).bindings[axis])
    at = next(k for k, loop in enumerate(loops) if loop.var in along)
    tiles, within = s.split(loops[at], None, width)
    vectors, vector = s.split(loops[-1], None, lanes)
    s.reorder(tiles, *loops[at + 1 : -1], within, vectors, vector)
    s.unroll(within)
    s.unroll(vectors)
    s.vectorize(vector)
    return [*loops[:at], tiles]


def _run(step: Iter, tile: Tile) -> int:
    """The length of a run: one vector, from which instructions pick lanes; all of a row that is
    short and broadcast, so that one loop covers it."""
    extent = extent_of(step) or 0
    few = 0 < extent <= _FEW_VECTORS * tile.lanes
    return extent if tile.factors == "broadcast" and few else tile.lanes
