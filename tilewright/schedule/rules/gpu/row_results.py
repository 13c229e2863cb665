"""Results of products by groups of warps: through shared memory, to be finished by whole rows.

for z, y, x in threads: C[…] = f(acc[…])            pairs of elements: 16 bytes of a row at a time
-->
for c in chunks of columns:
    for z, y, x in threads: S[…] = acc[…]           by the threads that hold them
    for z, y, x in threads: C[…] = f(S[…])          whole vectors, rows by warps
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.ir import Buffer, Const, DType, Expr, Load, Var, all_exprs, const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import Access, extent_of, stores_of
from tilewright.schedule.rules.gpu.grid import WIDE
from tilewright.schedule.rules.gpu.operands import loops_of, positions
from tilewright.schedule.rules.gpu.product_plan import Tile
from tilewright.schedule.rules.gpu.warp_tiles import WarpTile, by_threads
from tilewright.schedule.schedule import Schedule

#: Columns that are in shared memory at a time, and the padding of rows: what a warp writes of four
#: rows is then in different banks.
_COLUMNS: Final = 32
_GAP: Final = 8
_SUM_BYTES: Final = DType.of("float32").itemsize


def row_results_bytes(tile: Tile) -> int:
    """The bytes of shared memory for the results of a tile."""
    return tile.rows * (_COLUMNS + _GAP) * _SUM_BYTES


class RowResults(NamedTuple):
    """The product, the block that stages its results, the block that reads them; and the tile."""

    product: str
    stage: str
    home: str
    tile: WarpTile


def has_rows(s: Schedule, name: str, home: str, tile: WarpTile) -> bool:
    """Whether results are contiguous along the columns, in whole vectors."""
    block, acc = s.block_of(home), stores_of(s.block_of(name))[0].buffer
    own, store = _variables(s, home, acc, positions(s, name, tile.product))[1], stores_of(block)[0]
    (extent,) = (extent_of(it) for it in block.iters if it.var is own)
    is_run = Access(store.buffer, store.indices).step(own) == 1
    return is_run and extent is not None and extent % _lanes(s, home) == 0


def stage_rows(s: Schedule, name: str, grid: Loop) -> str:
    """Create the block that stages results in shared memory, a tile at a time."""
    stage = s.cache_write(name, 0, "local").name
    s.set_scope(stage, 0, "shared")
    s.reverse_compute_at(stage, grid)
    return stage


def finish_by_rows(s: Schedule, results: RowResults, around: Loop) -> None:
    """Compute the reader of the sums in threads that own contiguous elements."""
    name, stage, home, tile = results
    staged, places = s.block_of(stage).writes[0].buffer, positions(s, name, tile.product)
    variables = _variables(s, home, staged, places)
    (row,), (column,) = (loops_of(s, home, v, around) for v in variables)
    chunk, within = s.split(column, tile.size.columns // _COLUMNS, _COLUMNS)
    s.reorder(chunk, row, within)
    s.compute_at(stage, chunk)
    threads = tile.warps.threads
    extents = [extent for _, extent in threads]
    # Warps finish the rows that they have computed.
    sizes = [*extents[:-1], None, extents[-1], _lanes(s, home)]
    *outer, several, lane, vector = s.split(s.fuse(row, within), *sizes)
    bound = [*outer, lane]
    s.reorder(*bound, several, vector)
    for loop, (axis, _) in zip(bound, threads, strict=True):
        s.bind(loop, axis)
    s.vectorize(vector)
    s.unroll(several)
    store = stores_of(s.block_of(stage))[0]
    (row,), (column,) = (loops_of(s, stage, store.indices[place], chunk) for place in places)
    part = tile._replace(size=Tile(tile.size.rows, _COLUMNS))
    s.vectorize(by_threads(s, row, column, part))
    s.unroll(chunk)
    _lay_out(s, name, stage, tile)


def _lay_out(s: Schedule, name: str, stage: str, tile: WarpTile) -> None:
    buffer = s.block_of(stage).writes[0].buffer
    row, column = positions(s, name, tile.product)
    sizes = {row: tile.size.rows, column: _COLUMNS}
    extents = [int(e.value) if isinstance(e, Const) else None for e in buffer.shape]
    # A dimension of unknown extent can only come first.
    order = sorted(range(len(extents)), key=lambda k: extents[k] is not None)

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        number: Expr = const(0)
        for k in order:
            size = sizes.get(k, 1)
            number = number * -(-(extents[k] or 1) // size) + indices[k] // size
        return (number, *(indices[k] % size for k, size in sizes.items()))

    s.transform_layout(stage, buffer, layout)
    s.storage_align(stage, 0, 1, _COLUMNS, _GAP)


def _variables(s: Schedule, home: str, read: Buffer, places: tuple[int, int]) -> list[Var]:
    """The variables of a block that index some dimensions of what it reads."""
    loads = [e for e in all_exprs(s.block_of(home).body) if isinstance(e, Load)]
    load = next(e for e in loads if e.buffer is read)
    return [v for v in (load.indices[place] for place in places) if isinstance(v, Var)]


def _lanes(s: Schedule, home: str) -> int:
    """Elements of the result that a thread writes at once."""
    return max(1, WIDE // stores_of(s.block_of(home))[0].buffer.dtype.itemsize)
