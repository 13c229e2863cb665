"""Transposes: rows of the source become columns of the result, in tiles through registers.

for u: for v: D[v', u'] = S[u, v]
-->
for tiles: load a tile by rows of the source, interleave, store it by rows of the result
the edges, in smaller tiles, and then element by element
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.ir import Block, Const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import loops_within
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vectorize_innermost
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.rules.transpose_plan import (
    MANY,
    ThinPlan,
    TransposePlan,
    TransposeTile,
    find_thin_transpose,
    find_transpose,
    plan_thin_transpose,
    plan_transpose,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _schedule(s: Schedule, name: str, plan: TransposePlan, target: Target) -> None:
    """Copy in tiles."""
    axes, loops = plan.copy.axes, loops_within(s, name, None)
    across, along = loops.pop(axes.source.var), loops.pop(axes.result.var)
    others = list(loops.values())
    if axes.block and known_extent(s, across) > axes.block:
        # Split while it is the outermost loop, so that each part is a perfect nest.
        s.reorder(across, *others, along)
        across, *rest = whole_and_rest(s, across, axes.block)
        for part in rest:
            _, *inside, last = s.loops(_block_in(s, part))
            _schedule_part(s, plan, inside, last, part, target)
        blocks, across = s.split(across, None, axes.block)
        others.append(blocks)
    _schedule_part(s, plan, others, along, across, target)


TRANSPOSE = Rule("transpose", find_transpose, plan_transpose, _schedule)


def _schedule_part(
    s: Schedule,
    plan: TransposePlan,
    others: list[Loop],
    along: Loop,
    across: Loop,
    target: Target,
) -> None:
    """Copy a nest of loops, in tiles if any fits."""
    block = plan.copy.block
    tiles = [tile for tile in plan.tiles if tile.width <= known_extent(s, across)]
    if not tiles:
        # The remainder of a block: element by element, along the result.
        name = _block_in(s, across)
        vectorize_innermost(s, name, target)
        parallelize_outer(s, name, target, _work(block, target), [across, *others])
        return
    # Each loop is split while it is the outer one, so that whole tiles stay a perfect nest.
    s.reorder(*others, along, across)
    parts = [
        _transpose_part(s, part, tile, tiles[-1], plan.run, target)
        for tile, part in _cut(s, along, tiles)
    ]
    # The first kind of tile covers nearly all.
    _parallelize(s, block, others, parts[0], target)


def _schedule_thin(s: Schedule, name: str, plan: ThinPlan, target: Target) -> None:
    """Vectors along the source, each for all elements of the result's short rows at once."""
    (axes, block, _), lanes = plan
    loops = loops_within(s, name, None)
    across, along = loops.pop(axes.source.var), loops.pop(axes.result.var)
    others = list(loops.values())
    s.reorder(*others, across, along)
    outer, vector = s.split(whole_tiles(s, across, lanes), None, lanes)
    s.reorder(outer, along, vector)
    s.unroll(along)
    s.vectorize(vector)
    _parallelize(s, block, others, TransposedPart(name, [outer]), target)


THIN_TRANSPOSE = Rule("thin_transpose", find_thin_transpose, plan_thin_transpose, _schedule_thin)


def _parallelize(
    s: Schedule, block: Block, others: list[Loop], part: TransposedPart, target: Target
) -> None:
    """Parallelize all loops if they fuse with those over tiles; else the outer or the others."""
    work = _work(block, target)
    extents = [s.loop_of(loop).extent for loop in others]
    # An extent that is known only at run time counts as 1.
    count = max(1, prod(int(e.value) for e in extents if isinstance(e, Const)))
    within = [*others, *part.loops]
    if others and not s.can("fuse", others[-1], part.loops[0]):
        outside = count >= 2 * target.cores or work // count < target.timing.fork_operations
        own = [loop for loop in part.loops if known_extent(s, loop) > 1]
        within, work = (others, work) if outside or not own else (own, work // count)
    parallelize_outer(s, part.block, target, work, within)


def _cut(s: Schedule, along: Loop, tiles: list[TransposeTile]) -> list[tuple[TransposeTile, Loop]]:
    """The parts of a loop that whole tiles of each kind cover; the remainder is left alone."""
    if not isinstance(s.loop_of(along).extent, Const):
        return [(tiles[0], s.peel(along, tiles[0].height)[0])]
    extent = known_extent(s, along)
    kinds, points, end = list[TransposeTile](), list[int](), 0
    for tile in tiles:
        if extent - end >= tile.height:
            end += (extent - end) // tile.height * tile.height
            kinds.append(tile)
            points.append(end)
    inside = [point for point in points if point < extent]
    parts = s.loop_partition(along, *inside) if inside else [along]
    return list(zip(kinds, parts, strict=False))


class TransposedPart(NamedTuple):
    """A block of tiles, and the outer loops over these."""

    block: str
    loops: list[Loop]


def _transpose_part(
    s: Schedule, along: Loop, tile: TransposeTile, least: TransposeTile, run: int, target: Target
) -> TransposedPart:
    """Transpose a loop nest; columns too few for `tile` by the narrower tile `least`."""
    across = loop_inside(s, along)
    s.reorder(across, along)
    across, *rest = whole_and_rest(s, across, tile.width)
    if rest and least.width < tile.width and least.width <= known_extent(s, rest[0]):
        narrow = whole_tiles(s, rest[0], least.width)
        transpose_tiles(s, narrow, loop_inside(s, narrow), least)
    block, rows, columns = transpose_tiles(s, across, loop_inside(s, across), tile)
    rows, some_rows = s.split(rows, None, max(1, run // (tile.dtype.itemsize * tile.width)))
    # Whole lines of the result are written at once.
    line = max(1, target.caches.line // (tile.dtype.itemsize * tile.height))
    columns, some_columns = s.split(columns, None, line)
    s.reorder(rows, columns, some_rows, some_columns)
    return TransposedPart(block, [rows, columns])


def transpose_tiles(
    s: Schedule, across: Loop, along: Loop, tile: TransposeTile
) -> tuple[str, Loop, Loop]:
    """Transpose a nest of two loops by tiles; gives a tile's block and the loops around."""
    rows, row = s.split(across, None, tile.width)
    columns, column = s.split(along, None, tile.height)
    s.reorder(rows, columns, row, column)
    return s.tensorize(row, tile.intrin).name, rows, columns


def whole_tiles(s: Schedule, loop: Loop, size: int) -> Loop:
    """The part of a loop that whole tiles cover; the remainder becomes a separate loop."""
    return whole_and_rest(s, loop, size)[0]


def whole_and_rest(s: Schedule, loop: Loop, size: int) -> Sequence[Loop]:
    """The part of a loop that whole tiles cover, and a loop over the remainder if there is one."""
    if not isinstance(s.loop_of(loop).extent, Const):
        return s.peel(loop, size)
    extent = known_extent(s, loop)
    whole = extent // size * size
    return [loop] if whole == extent else s.loop_partition(loop, whole)


def loop_inside(s: Schedule, loop: Loop) -> Loop:
    """The innermost loop of the nest inside `loop`."""
    return s.loops(_block_in(s, loop))[-1]


def _block_in(s: Schedule, loop: Loop) -> str:
    return next(b.name for b in s.blocks() if loop in s.loops(b))


def _work(block: Block, target: Target) -> int:
    """The cost of the whole copy, in simple operations."""
    return instances(block) * target.timing.transpose_operations


def known_extent(s: Schedule, loop: Loop) -> int:
    """The extent of a loop; `MANY` where it is unknown."""
    extent = s.loop_of(loop).extent
    return int(extent.value) if isinstance(extent, Const) else MANY
