"""Copies that turn a row of the source into a column of the result: square tiles through registers.

for u: for v: D[v', u'] = S[u, v]
-->
for tiles: load a tile by rows of the source, interleave, store it by rows of the result
what is left at the edges, element by element
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Block, Const, Iter, Load, Store
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import transpose_tile
from tilewright.schedule.rules.analysis import Access, extent_of, is_injective, stores_of
from tilewright.schedule.rules.elementwise import instances, parallelize_outer
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tensor_intrin import TensorIntrin
from tilewright.target import Target

#: Elements of a row of the source that are turned together: long runs are read ahead.
_RUN = 256


class Turn(NamedTuple):
    """The variables along which neighbours lie in the source, and in the result."""

    source: Iter
    result: Iter


def as_turn(block: Block) -> Turn | None:
    """The block as a copy whose source and result run along different variables."""
    stores = stores_of(block)
    if len(stores) != 1 or not is_injective(block) or not isinstance(stores[0].value, Load):
        return None
    store, load = stores[0], stores[0].value
    inner, outer = _runs_along(block, store), _runs_along(block, load)
    if inner is None or outer is None or inner is outer:
        return None
    return Turn(source=outer, result=inner)


def _runs_along(block: Block, access: Store | Load) -> Iter | None:
    steps = Access(access.buffer, access.indices)
    return next((it for it in block.iters if steps.step(it.var) == 1), None)


def can_transpose(block: Block, turn: Turn, target: Target) -> bool:
    """Whether at least one whole tile fits, as far as is known."""
    lanes = target.lanes(stores_of(block)[0].buffer.dtype)
    return lanes > 1 and all((extent_of(it) or 0) >= lanes for it in turn)


def schedule_transpose(s: Schedule, name: str, turn: Turn, target: Target) -> None:
    """Copy by tiles."""
    block = s.block_of(name)
    dtype = stores_of(block)[0].buffer.dtype
    lanes = target.lanes(dtype)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    across, along = loops.pop(turn.source.var), loops.pop(turn.result.var)
    others = list(loops.values())
    # Each is cut while it is the outer one, so that whole tiles stay a perfect nest.
    s.reorder(*others, along, across)
    along = whole_tiles(s, along, lanes)
    s.reorder(across, along)
    across = whole_tiles(s, across, lanes)
    done, rows, columns = turn_tiles(s, across, along, transpose_tile(dtype, lanes), lanes)
    rows, some_rows = s.split(rows, None, max(1, _RUN // lanes))
    # Whole cache lines of the result are written at once.
    line = max(1, target.caches.line // (dtype.itemsize * lanes))
    columns, some_columns = s.split(columns, None, line)
    s.reorder(rows, columns, some_rows, some_columns)
    parallelize_outer(s, done, target, instances(block) * 4, within=[*others, rows, columns])


def turn_tiles(
    s: Schedule, across: Loop, along: Loop, tile: TensorIntrin, lanes: int
) -> tuple[str, Loop, Loop]:
    """Transpose by tiles what two loops run over; gives a tile's block and the loops around."""
    rows, row = s.split(across, None, lanes)
    columns, column = s.split(along, None, lanes)
    s.reorder(rows, columns, row, column)
    return s.tensorize(row, tile).name, rows, columns


def whole_tiles(s: Schedule, loop: Loop, lanes: int) -> Loop:
    """The part of a loop that whole tiles cover; the rest becomes a loop of its own."""
    extent = s.loop_of(loop).extent
    assert isinstance(extent, Const)
    whole = int(extent.value) // lanes * lanes
    return loop if whole == extent.value else s.loop_partition(loop, whole)[0]
