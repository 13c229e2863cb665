"""Packing of a product's columns: panels of tiles, read by whole cache lines.

    for panel:
        for step of the reduction:
            prefetch the line of the panel some steps later
            for tile: for vector: P[tile, step, vector] = B[step, panel, tile, vector]

Each step reads another row of the operand, far from the last one. A line that two tiles share is
read once for both: where rows map to the same cache sets, it would be evicted before the second
tile is packed. Rows are prefetched, since hardware does not prefetch across pages.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import gcd

from tilewright.ir import DType, Var
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.products.tiles import Tile
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def tiles_in_a_panel(target: Target, tile: Tile, dtype: DType) -> int:
    """How many tiles of columns cover a whole number of cache lines."""
    line = max(1, target.caches.line // dtype.itemsize)
    return line // gcd(line, tile.columns)


def pack_panels(
    s: Schedule,
    copy: str,
    loops: Sequence[Loop],
    along: Set[Var],
    tile: Tile,
    together: int,
    target: Target,
) -> Loop | None:
    """Let the block `copy`, in `loops`, pack columns, `together` tiles at a time.

    Columns run `along` these variables. Gives the loop over panels; None for a single column.
    """
    dtype, others = s.block_of(copy).writes[0].buffer.dtype, list(loops)
    # Dimensions of one element have no loops.
    columns = next((loop for loop in loops if loop.var in along), None)
    if columns is None:
        return None
    others.remove(columns)
    panel, tiles, vectors, lanes = s.split(columns, None, together, tile.vectors, tile.lanes)
    s.reorder(panel, *others, tiles, vectors, lanes)
    s.unroll(tiles)
    s.unroll(vectors)
    s.vectorize(lanes)
    if others:
        lines = -(-together * tile.columns * dtype.itemsize // target.caches.line)
        s.annotate(others[-1], "prefetch", max(1, target.timing.lines_in_flight // lines))
    return panel
