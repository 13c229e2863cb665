"""Chunks of rows that are packed together, and how the rows of an image are gathered into them.

for chunk (parallel):                           or, where there are few rows,
    for tile: for run of a row:                     for tile (parallel): gather
        for row of the tile: copy the run           for columns (parallel): for tile: …
    for columns: for tile: …

A run of one row is followed by that of the next row of the tile: a tile reads memory sequentially.
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

#: Rows of at most so many vectors are kept as one run.
_FEW_VECTORS = 4
#: Two panels of columns that stay in L2 may be so many times as large as it.
_PANELS = 1.25
#: Threads take chunks of rows where every core has at least so many tiles, else parts of columns.
_SHARE = 4
#: Parts that a thread has at most, the fewest panels of one, and how much longer the busiest thread
#: may take for that.
_PARTS, _PART, _UNEVEN = 4, 6, 1.03


def tiles_that_fit(size: int, target: Target) -> int:
    """How many tiles of so many bytes fit L2 beside the columns that are streamed: 5/8 of it."""
    return max(1, target.caches.l2 * 5 // 8 // max(1, size))


def evenly_cut(tiles: int, fit: int, target: Target, cores: int = 0) -> int:
    """How many tiles make a chunk, not more than `fit`, so that cores have about the same work:
    those of the target, or so many."""
    cores = cores or target.cores

    def cost(size: int) -> float:
        chunks = -(-tiles // size)
        return _busiest(tiles, size, cores) * (1 + target.timing.chunk_cost * chunks)

    return min(range(1, min(fit, -(-tiles // cores)) + 1), key=cost)


def even_parts(tiles: int, cores: int) -> int:
    """Into how many parts threads cut panels of columns: several each where that leaves them about
    the same work, so that one that is slow can be helped (`codegen.llvm.threadpool`)."""
    least = -(-tiles // cores)
    several = [cores * n for n in range(1, min(_PARTS, least // _PART) + 1)]
    even = [n for n in several if _busiest(tiles, -(-tiles // n), cores) <= least * _UNEVEN]
    return max(even, default=cores)


def _busiest(tiles: int, size: int, cores: int) -> int:
    """Tiles of the core that has most, by chunks of this size."""
    chunks = -(-tiles // size)
    return min(tiles, -(-chunks // cores) * size)


class Chunks(NamedTuple):
    """Chunks of packed rows that meet all columns, panel by panel: what it takes to read both.

    A panel of columns comes from far away once for each chunk, and stays in L2 while the tiles of a
    chunk use it. The rows of a chunk are read again for each panel, from L2 if they stay there too.
    """

    tile: Tile
    #: Bytes of an element; steps of the reduction.
    itemsize: int
    depth: int
    target: Target

    def best(self, tiles: int, cores: int) -> int:
        """How many tiles make a chunk; one where there is no cache that would hold more."""
        most = -(-tiles // cores) if self.target.caches.l2 else 1
        return min(range(1, most + 1), key=lambda n: self.cost(tiles, n, cores))

    def cost(self, tiles: int, size: int, cores: int) -> float:
        """The time of the busiest core, as that of so many tiles that wait for nothing."""
        begun = self.target.timing.chunk_cost * -(-tiles // size)
        return _busiest(tiles, size, cores) * (1 + self.waits(size) + begun)

    def waits(self, size: int) -> float:
        """Time waited for what lies beyond L2, as a share of that of the multiply-adds."""
        tile, timing, l2 = self.tile, self.target.timing, self.target.caches.l2
        columns, rows = tile.columns * self.itemsize, tile.rows * self.itemsize
        stays = size > 1 and 2 * columns * self.depth <= l2 * _PANELS
        far = columns / size if stays else float(columns)
        held = size * rows * self.depth + (2 * columns * self.depth if stays else 0)
        far += rows if held > l2 else 0
        cycles = tile.rows * tile.vectors / self.target.fma_ports
        return timing.far_share * far / cycles / timing.l3_bytes_per_cycle


class GatheredRows(NamedTuple):
    """The rows of a product that are gathered, and the bytes of each."""

    rows: int
    size: int
    target: Target

    def are_shared(self, tile: int) -> bool:
        """Whether threads take chunks of rows, in tiles of so many, and not columns each."""
        return self.rows >= _SHARE * self.target.cores * tile

    def tiles_per_chunk(self, tile: int) -> int:
        """How many tiles make a chunk."""
        tiles, fit = -(-self.rows // tile), tiles_that_fit(self.size * tile, self.target)
        # Few rows meet all columns together: these come from far away, and are read just once.
        return evenly_cut(tiles, fit, self.target) if self.are_shared(tile) else tiles

    def computed(self, tile: int) -> int:
        """How many rows' time it takes, with rows past the end and with idle threads counted in."""
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
    a square, or no square is whole.
    """
    extents = [s.loop_of(loop).extent for loop in loops]
    sizes = [int(e.value) for e in extents if isinstance(e, Const)]
    if len(sizes) != 2 or len(loops) != 2 or sizes[0] < square.height or sizes[1] < square.width:
        return None
    if s.block_of(copy).predicate is not TRUE and rows % square.height:
        return None
    # Each is cut while it is the outer one, so that whole squares stay a perfect nest.
    across, along = whole_tiles(s, loops[0], square.height), loops[1]
    s.reorder(along, across)
    _, along, across = transpose_tiles(s, whole_tiles(s, along, square.width), across, square)
    return along, across


def copy_tiles(
    s: Schedule, copy: str, loops: Sequence[Loop], tile: Tile, target: Target
) -> list[Loop]:
    """Let the block `copy` copy the rows of tiles next to each other, each row as a whole.

    Gives the loops down to that over rows.
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
    """Let the block `copy` gather rows, its dimension `axis`, for tiles of sums, in `chunk`.

    Gives the loops down to that over tiles.
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
    """The length of a run: a vector, of which instructions pick lanes, or all of a short row, so
    that one loop runs over it."""
    extent = extent_of(step) or 0
    few = 0 < extent <= _FEW_VECTORS * tile.lanes
    return extent if tile.factors == "broadcast" and few else tile.lanes
