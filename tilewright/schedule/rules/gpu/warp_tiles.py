"""Tiles that warps multiply by tensor instructions (`ir.warps`): which thread computes and holds
what.

Rows and columns of a tile are distributed over warps along `threadIdx.z` and `threadIdx.y`; the
threads of a warp run along `threadIdx.x`. Groups of warps share only the rows, along `threadIdx.z`;
the four warps of a group run along `threadIdx.y`.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import (
    EXCHANGED_BYTES,
    GROUP,
    GROUP_ROWS,
    ROW_BYTES,
    TILE_SIDE,
    WARP,
    Buffer,
    Const,
    Expr,
    Factors,
    Load,
    Var,
    all_exprs,
    const,
    sum_place,
)
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import Access, extent_of, stores_of
from tilewright.schedule.rules.gpu.grid import extent_of_loop, fused
from tilewright.schedule.rules.gpu.operands import loops_of, positions, runs_along
from tilewright.schedule.rules.gpu.product_plan import Product, Tile, is_by_large_matrix
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Warps(NamedTuple):
    """How many warps share the rows and the columns of a tile; or how many groups of warps share
    the rows, and how many warps a group has."""

    down: int
    over: int
    are_groups: bool = False

    @property
    def threads(self) -> tuple[tuple[str, int], ...]:
        """The axes of a block of threads with their extents, the slowest first."""
        return ("threadIdx.z", self.down), ("threadIdx.y", self.over), ("threadIdx.x", WARP)


class WarpTile(NamedTuple):
    """A tile of a product, and the warps that compute it."""

    product: Product
    size: Tile
    warps: Warps

    @property
    def factors(self) -> Factors:
        """The types of its instruction's operands."""
        found = self.product.factors
        assert found is not None, "its product has an instruction"
        return found

    def parts(self, side: int) -> tuple[int, int, int]:
        """Rows (0) or columns (1) as warps, tiles of an instruction, and such a tile's side."""
        count = (self.warps.down, self.warps.over)[side]
        return count, self.size[side] // count // TILE_SIDE, TILE_SIDE


def has_instruction(p: Product, target: Target) -> bool:
    """Whether there is an instruction for a product, with enough rows and columns to use it."""
    gpu, factors = target.gpu, p.factors
    sides = (extent_of(it) for it in (p.row, p.column))
    is_wide = all(extent is None or extent > TILE_SIDE // 2 for extent in sides)
    is_enough = is_wide or is_by_large_matrix(p)
    return is_enough and gpu is not None and factors is not None and gpu.multiplies(factors.a.name)


def runs_along_sum(s: Schedule, name: str, copy: str, depth: Var) -> bool:
    """Whether an operand is contiguous along the sum."""
    tile = s.block_of(copy).writes[0].buffer
    (load,) = [
        e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load) and e.buffer is tile
    ]
    variables = [v for v in load.indices if isinstance(v, Var)]
    return runs_along(s.block_of(copy), depth, variables)


def start_sums(s: Schedule, name: str, start: str, tile: WarpTile, around: Loop) -> None:
    """Initialise sums in the threads that hold them; `around` is the loop over tiles."""
    store = stores_of(s.block_of(start))[0]
    places = positions(s, name, tile.product)
    rows, columns = (loops_of(s, start, store.indices[place], around) for place in places)
    s.reorder(*rows, *columns)
    s.unroll(by_threads(s, fused(s, rows), fused(s, columns), tile))


def by_threads(s: Schedule, row: Loop, column: Loop, tile: WarpTile) -> Loop:
    """Bind loops over the sums of a tile to the threads that hold them; gives the loop over pairs
    of contiguous elements. Results that fill at most half of an instruction's rows or columns are
    in the first halves of what threads hold."""
    down, right = (_halves(s, loop) for loop in (row, column))
    if tile.warps.are_groups:
        wm, wn, high, below = s.split(row, tile.warps.down, tile.warps.over, down, 8)
        ni, jh, over, pair = s.split(column, tile.size.columns // TILE_SIDE, right, 4, 2)
        inside = [ni, jh, high]
    else:
        wm, mi, high, below = s.split(row, *tile.parts(0)[:2], down, 8)
        wn, ni, jh, over, pair = s.split(column, *tile.parts(1)[:2], right, 4, 2)
        inside = [mi, high, ni, jh]
    s.reorder(wm, wn, below, over, *inside, pair)
    lane = s.fuse(below, over)
    for loop, axis in ((wm, "threadIdx.z"), (wn, "threadIdx.y"), (lane, "threadIdx.x")):
        s.bind(loop, axis)
    for loop in inside:
        s.unroll(loop)
    return pair


def _halves(s: Schedule, loop: Loop) -> int:
    """How many halves of an instruction's rows or columns a loop over results covers."""
    extent = extent_of_loop(s, loop)
    return 1 if extent is not None and extent <= TILE_SIDE // 2 else 2


def finish(s: Schedule, name: str, home: str, tile: WarpTile, around: Loop) -> None:
    """Compute the reader of the sums in the threads that hold them."""
    block, acc = s.block_of(home), stores_of(s.block_of(name))[0].buffer
    load = next(e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer is acc)
    places = positions(s, name, tile.product)
    (row,), (column,) = (loops_of(s, home, load.indices[place], around) for place in places)
    pair = by_threads(s, row, column, tile)
    store, own = stores_of(s.block_of(home))[0], load.indices[places[1]]
    assert isinstance(own, Var)
    (extent,) = (extent_of(it) for it in block.iters if it.var is own)
    is_run = Access(store.buffer, store.indices).step(own) == 1
    # With an odd number of columns a pair may be half outside.
    s.vectorize(pair) if is_run and (extent or 2) % 2 == 0 else s.unroll(pair)


def lay_out_sums(s: Schedule, name: str, tile: WarpTile) -> None:
    """Lay out the sums by the threads that hold them."""
    acc = stores_of(s.block_of(name))[0].buffer
    lay_out_own(s, name, acc, positions(s, name, tile.product), tile)


def lay_out_own(
    s: Schedule, name: str, buffer: Buffer, sides: tuple[int, int], tile: WarpTile
) -> None:
    """Lay out a buffer by owning thread: buffer[…, warps, thread, tiles of the warp, own].

    `sides` are the dimensions of rows and of columns.
    """
    row, column = sides

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        others = [index for k, index in enumerate(indices) if k not in (row, column)]
        places = indices[row], indices[column]
        tiles = [index // size for index, size in zip(places, tile.size, strict=True)]
        lane, own = sum_place(places[0] % TILE_SIDE, places[1] % TILE_SIDE)
        return (*others, *tiles, *_threads(places, tile), lane, *_parts(places, tile), own)

    s.transform_layout(name, buffer, layout)


def _threads(places: tuple[Expr, Expr], tile: WarpTile) -> list[Expr]:
    """Which warp holds a sum."""
    if tile.warps.are_groups:
        return [places[0] // GROUP_ROWS % tile.warps.down, places[0] // TILE_SIDE % GROUP]
    sides = zip(places, tile.size, tile.warps[:2], strict=True)
    return [index // (size // count) % count for index, size, count in sides]


def _parts(places: tuple[Expr, Expr], tile: WarpTile) -> list[Expr]:
    """Which of a warp's tiles of an instruction holds a sum."""
    if tile.warps.are_groups:
        return [places[1] // TILE_SIDE % (tile.size.columns // TILE_SIDE)]
    return [index // TILE_SIDE % tile.parts(side)[1] for side, index in enumerate(places)]


def lay_out_copy(
    s: Schedule,
    name: str,
    copy: str,
    side: tuple[Var, int],
    depth: tuple[Var, int],
    *,
    by_sum: bool,
    by_groups: bool = False,
) -> None:
    """Store a tile contiguously along the sum or along the other side, as its operand is.

    Rows are an odd number of vectors apart, so that eight rows are in different banks. For groups
    of warps, rows have a fixed length and are swizzled instead.
    """
    tile = s.block_of(copy).writes[0].buffer
    pitch, vector = (size // tile.dtype.itemsize for size in (ROW_BYTES, EXCHANGED_BYTES))
    (load,) = [
        e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load) and e.buffer is tile
    ]
    variables = [v for v in load.indices if isinstance(v, Var)]
    assert len(variables) == len(load.indices), "reindex reads by variables alone"
    inner, outer = (depth, side) if by_sum else (side, depth)
    sizes = dict((inner, outer))
    extents = {
        v: int(e.value) if isinstance(e, Const) else None
        for v, e in zip(variables, tile.shape, strict=True)
    }
    # The number of the tile. A dimension of unknown extent comes first, where it does not matter.
    order = sorted(variables, key=lambda v: extents[v] is not None)
    is_known = None not in [extents[v] for v in order[1:]]

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        own = dict(zip(variables, indices, strict=True))
        number: Expr = const(0)
        for variable in order:
            size = sizes.get(variable, 1)
            number = number * -(-(extents[variable] or 1) // size) + own[variable] // size
        others = [own[v] // sizes.get(v, 1) for v in variables]
        tiles = [number] if is_known else others
        row, element = own[outer[0]] % outer[1], own[inner[0]] % inner[1]
        if by_groups:
            return (*tiles, element // pitch, row, element % pitch)
        return (*tiles, row, element)

    s.transform_layout(copy, tile, layout)
    if is_known and not by_groups:
        # Where strides are given, only the first dimension can shrink.
        s.storage_align(copy, 0, 1, 2 * vector, vector)
