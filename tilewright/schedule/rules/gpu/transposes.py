"""Transposes: tiles through shared memory, read along the source and written along the result.

for u: for v: D[v', u'] = S[u, v]
-->
for tiles in blocks:
    for y, x in threads: tile[…, x] = S[…, x]                 neighbours of the source
    for y, x in threads: D[…, x] = tile[x, …]                 neighbours of the result
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from tilewright.ir import Block, Const, Expr, Iter, Load, Var, const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import extent_of, has_own_loops, stores_of
from tilewright.schedule.rules.gpu.grid import extent_of_loop, fused
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.rules.transpose_plan import as_transpose
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Vectors in a row of a tile: a warp reads, or writes, one row.
_TILE: Final = 32
#: Bytes of a vector; wider ones would conflict in the banks of shared memory.
_VECTOR: Final = 4
#: Rows of a tile that are copied in parallel; the others follow one after the other.
_ROWS: Final = 8
#: Thinner transposes are left to the caches.
_LEAST: Final = 16
#: Tiles per multiprocessor from which on they are wide; smaller ones keep more of them busy.
_ENOUGH: Final = 4


class Directions(NamedTuple):
    """The variables that are contiguous in the source and in the result, the position of the latter
    among the source's indices, and how many elements may move as a vector, best first."""

    source: Var
    result: Var
    place: int
    lanes: tuple[int, ...]


class Tiles(NamedTuple):
    """The directions, the elements of a vector, and the rows of threads of a block."""

    directions: Directions
    lanes: int
    rows: int

    @property
    def side(self) -> int:
        return _TILE * self.lanes


def _match(s: Schedule, name: str, target: Target) -> Directions | None:
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
    lanes = _lanes(block, (axes.source, axes.result), target)
    return Directions(axes.source.var, axes.result.var, places[0], lanes)


def _lanes(block: Block, across: tuple[Iter, Iter], target: Target) -> tuple[int, ...]:
    """How many elements may move as a vector, best first. All rows must be whole vectors."""
    assert target.gpu is not None
    lanes = _VECTOR // stores_of(block)[0].buffer.dtype.itemsize
    extents = [extent_of(it) for it in block.iters]
    known = [e for e in extents if e is not None]
    if lanes < 2 or len(known) < len(extents) or any((extent_of(it) or 1) % lanes for it in across):
        return (1,)
    tiles = prod(known) // (_TILE * lanes) ** 2
    return (lanes, 1) if tiles >= _ENOUGH * target.gpu.multiprocessors else (1, lanes)


def _plan(found: Directions, _target: Target, choices: Choices) -> Tiles:
    lanes = choices.choose("lanes", found.lanes)
    return Tiles(found, lanes, choices.choose("rows", (_ROWS, 4, 16)))


def _schedule(s: Schedule, name: str, plan: Tiles, _target: Target) -> None:
    block = s.block_of(name)
    load = stores_of(block)[0].value
    assert isinstance(load, Load)
    copy = s.cache_read(name, load.buffer, "shared").name
    _lay_out(s, copy, plan)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    across, along = loops.pop(plan.directions.source), loops.pop(plan.directions.result)
    across, row = s.split(across, None, plan.side)
    along, column = s.split(along, None, plan.side)
    outer = [*loops.values(), across, along]
    s.reorder(*outer, row, column)
    grid = fused(s, outer)
    copied = s.compute_at(copy, grid)
    s.bind(grid, "blockIdx.x")
    _give_to_threads(s, copied[-2], copied[-1], plan)
    _give_to_threads(s, row, column, plan)


TRANSPOSES = Rule("transposes", _match, _plan, _schedule)


def _lay_out(s: Schedule, copy: str, plan: Tiles) -> None:
    """Lay out tiles one after the other, with rows padded to avoid bank conflicts."""
    tile = s.block_of(copy).writes[0].buffer
    extents = [int(e.value) for e in tile.shape if isinstance(e, Const)]
    place, side = plan.directions.place, plan.side
    if len(extents) < tile.ndim:
        return  # a layout cannot depend on sizes known only at run time

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        number: Expr = const(0)
        for k, (index, extent) in enumerate(zip(indices, extents, strict=True)):
            is_cut = k in (place, len(extents) - 1)
            number = number * (-(-extent // side) if is_cut else extent)
            number = number + (index // side if is_cut else index)
        return number, indices[place] % side, indices[-1] % side

    s.transform_layout(copy, tile, layout)
    s.storage_align(copy, 0, 1, side, 1)


def _give_to_threads(s: Schedule, row: Loop, column: Loop, plan: Tiles) -> None:
    several, row = s.split(row, None, plan.rows)
    column, vector = s.split(column, None, plan.lanes)
    s.reorder(row, column, several, vector)
    s.bind(row, "threadIdx.y")
    s.bind(column, "threadIdx.x")
    if extent_of_loop(s, several) is not None:
        s.unroll(several)
    s.vectorize(vector)
