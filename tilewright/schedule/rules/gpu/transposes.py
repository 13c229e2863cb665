"""Transposes: tiles through shared memory, read along the source and written along the result.

for u: for v: D[v', u'] = S[u, v]
-->
for tiles in blocks:
    for y, x in threads: tile[…, x] = S[…, x]                 neighbours of the source
    for y, x in threads: D[…, x] = tile[x, …]                 neighbours of the result
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.ir import Const, Expr, Load, Var, const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import extent_of, has_own_loops, stores_of
from tilewright.schedule.rules.gpu.grid import extent_of_loop, fused
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.rules.transpose_plan import as_transpose
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Side of a tile: a warp reads, or writes, one row of it.
_TILE: Final = 32
#: Rows of a tile that are copied in parallel; the others follow one after the other.
_ROWS: Final = 8
#: Thinner transposes are left to the caches.
_LEAST: Final = 16


class Directions(NamedTuple):
    """The variables that are contiguous in the source and in the result, and the position of the
    latter among the source's indices."""

    source: Var
    result: Var
    place: int


class Tiles(NamedTuple):
    """The directions, and the rows of threads of a block."""

    directions: Directions
    rows: int


def _match(s: Schedule, name: str, _target: Target) -> Directions | None:
    block = s.block_of(name)
    axes = as_transpose(block) if has_own_loops(s, name) else None
    if axes is None or axes.block:
        return None
    load = stores_of(block)[0].value
    assert isinstance(load, Load)
    places = [k for k, index in enumerate(load.indices) if index is axes.result.var]
    if load.indices[-1] is not axes.source.var or len(places) != 1:
        return None
    if any((extent_of(it) or _TILE) < _LEAST for it in (axes.source, axes.result)):
        return None
    return Directions(axes.source.var, axes.result.var, places[0])


def _plan(found: Directions, _target: Target, choices: Choices) -> Tiles:
    return Tiles(found, choices.choose("rows", (_ROWS, 4, 16)))


def _schedule(s: Schedule, name: str, plan: Tiles, _target: Target) -> None:
    block = s.block_of(name)
    load = stores_of(block)[0].value
    assert isinstance(load, Load)
    copy = s.cache_read(name, load.buffer, "shared").name
    _lay_out(s, copy, plan.directions.place)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    across, along = loops.pop(plan.directions.source), loops.pop(plan.directions.result)
    across, row = s.split(across, None, _TILE)
    along, column = s.split(along, None, _TILE)
    outer = [*loops.values(), across, along]
    s.reorder(*outer, row, column)
    grid = fused(s, outer)
    copied = s.compute_at(copy, grid)
    s.bind(grid, "blockIdx.x")
    _give_to_threads(s, copied[-2], copied[-1], plan.rows)
    _give_to_threads(s, row, column, plan.rows)


TRANSPOSES = Rule("transposes", _match, _plan, _schedule)


def _lay_out(s: Schedule, copy: str, place: int) -> None:
    """Lay out tiles one after the other, with rows padded to avoid bank conflicts."""
    tile = s.block_of(copy).writes[0].buffer
    extents = [int(e.value) for e in tile.shape if isinstance(e, Const)]
    if len(extents) < tile.ndim:
        return  # a layout cannot depend on sizes known only at run time

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        number: Expr = const(0)
        for k, (index, extent) in enumerate(zip(indices, extents, strict=True)):
            is_cut = k in (place, len(extents) - 1)
            number = number * (-(-extent // _TILE) if is_cut else extent)
            number = number + (index // _TILE if is_cut else index)
        return number, indices[place] % _TILE, indices[-1] % _TILE

    s.transform_layout(copy, tile, layout)
    s.storage_align(copy, 0, 1, _TILE, 1)


def _give_to_threads(s: Schedule, row: Loop, column: Loop, rows: int) -> None:
    several, row = s.split(row, None, rows)
    s.reorder(row, column, several)
    s.bind(row, "threadIdx.y")
    s.bind(column, "threadIdx.x")
    if extent_of_loop(s, several) is not None:
        s.unroll(several)
