"""Reductions whose innermost output dimension is not reduced (depthwise convolution, pooling,
column sums, products with few rows): vectors along that dimension.

A tile of accumulators stays in registers while it is reduced. Long reductions over far-apart rows
are handled by `long_columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import NamedTuple

from tilewright.arith import linear
from tilewright.ir import Block, Buffer, Const, DType, Expr, Iter, Var, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    accesses_of,
    constants_of,
    extent_of,
    has_own_loops,
    looks_up,
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vector_lanes
from tilewright.schedule.rules.epilogue import begin_epilogue, place_epilogue
from tilewright.schedule.rules.padding import (
    inline_padding,
    join_pixels,
    place_padding,
    shared_strip_of,
)
from tilewright.schedule.rules.reductions.long_columns import is_long
from tilewright.schedule.rules.reductions.vectors import vector_variable
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Reductions up to this long are unrolled.
_SHORT = 16
#: The most accumulators of a tile in registers, and the most vectors side by side.
_TILE, _VECTORS = 12, 4
#: Accumulators of a tile one vector wide, for overlapping windows, with 32 registers: the other
#: registers hold as many operands.
_LONG_TILE = 14
#: Bits of operands that are multiplied with twice the lanes, and the type of their sums.
_NARROW, _SUM = 8, DType.of("int32")
#: The most vectors that a tile and its unrolled reduction may have together: windows of 3×3 share
#: their loads, whatever the tile.
_LARGE = 9 * _LONG_TILE
#: Axes of a window over an image.
_WINDOW_AXES = 2


class ColumnReduction(NamedTuple):
    """Such a reduction, on a copy of the schedule where its epilogue is begun and its padding
    inlined as far as possible."""

    schedule: Schedule
    name: str
    column: Iter
    #: The last of the other dimensions, which tiles are cut from; None without one.
    row: Iter | None
    epilogue: list[str]
    #: The blocks that still pad an operand.
    pads: list[str]
    lanes: int
    work: int

    @property
    def block(self) -> Block:
        return self.schedule.block_of(self.name)

    @property
    def others(self) -> list[Iter]:
        """The output dimensions that no tile is cut from."""
        tiled = {it.var for it in (self.column, self.row) if it is not None}
        return [it for it in self.block.iters if it.kind == "spatial" and it.var not in tiled]


class ColumnTile(NamedTuple):
    """Accumulators in registers: rows × vectors."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class ColumnsPlan:
    """How such a reduction is cut."""

    found: ColumnReduction
    tile: ColumnTile
    #: Rows of the image that are padded and reduced together; None for the whole image.
    strip: int | None
    #: Whether the loops over the tiles of a row stay serial: only then is it known at compile time
    #: which tiles touch an edge of the image.
    serial_tiles: bool


def _match(s: Schedule, name: str, target: Target) -> ColumnReduction | None:
    block = s.block_of(name)
    column = vector_variable(block) if has_own_loops(s, name) else None
    if column is None or is_long(block, target):
        return None
    lanes, work = _lanes(block, column, target), instances(block) * operations(block)
    s = s.copy()
    epilogue, pads = begin_epilogue(s, name), inline_padding(s, name, column)
    row = _row_variable(s.block_of(name), column)
    return ColumnReduction(s, name, column, row, epilogue, pads, lanes, work)


def _lanes(block: Block, column: Iter, target: Target) -> int:
    """Lanes of the sums: twice as many for bytes, which fill registers once widened to 16 bits."""
    lanes = vector_lanes(block, target)
    read = {a.buffer.dtype for a in accesses_of(block) if a.step(column.var)}
    sums = {store.buffer.dtype for store in stores_of(block)}
    is_wide = sums == {_SUM} and all(t.bits == _NARROW for t in read - sums) and read > sums
    width = extent_of(column) or 0
    return 2 * lanes if is_wide and target.has_widening_fma and width % (2 * lanes) == 0 else lanes


# ---- decisions ----------------------------------------------------------------------------------


def _plan(found: ColumnReduction, target: Target, choices: Choices) -> ColumnsPlan:
    tile = choices.choose("tile", _tiles(found, target))
    own = _strip_rows(found, target)
    strips = (own,) if own is None else tuple(dict.fromkeys((own, max(1, own // 2), own * 2)))
    strip = choices.choose("strip", strips)
    # Tiles of separately padded strips are never shared between threads.
    serial = strip is not None or _are_enough(found.others, target)
    candidates = (serial,) if strip is not None else (serial, not serial)
    return ColumnsPlan(found, tile, strip, choices.choose("serial_tiles", candidates))


def _tiles(found: ColumnReduction, target: Target) -> list[ColumnTile]:
    """The tiles that fit the registers, the best one first."""
    row, width = found.row, extent_of(found.column)
    most = _VECTORS if width is None else max(1, min(_VECTORS, width // found.lanes))
    if row is None:
        return [ColumnTile(1, v) for v in range(most, 0, -1)]
    tile = _TILE * vector_lanes(found.block, target) // found.lanes
    wide = [ColumnTile(_even(row, max(1, tile // v)), v) for v in range(most, 0, -1)]
    long = ColumnTile(_long_tile(found, row, target), 1)
    slides = _slides(found, row, most, tile, target)
    tiles = [long, *wide] if slides else [*wide, long]
    halves = [ColumnTile(max(1, tile.rows // 2), tile.vectors) for tile in tiles]
    return list(dict.fromkeys([*tiles, *halves]))


def _are_enough(others: list[Iter], target: Target) -> bool:
    """Whether these dimensions have work for every core.

    A batch of unknown size may be 1; an unknown number of rows is assumed large.
    """
    extents = [extent_of(it) for it in others]
    return prod(e or 1 for e in extents) >= target.cores or None in extents[1:]


def _strip_rows(found: ColumnReduction, target: Target) -> int | None:
    """Rows of the image that are padded together, so that they stay in L2; None where there is no
    padding, or where the whole image is padded first."""
    if not found.pads or not found.others:
        return None
    padded = {found.schedule.block_of(p).writes[0].buffer for p in found.pads}
    image = next(a for a in accesses_of(found.block) if a.buffer in padded)
    return shared_strip_of(
        found.schedule, found.name, image, found.others, target.caches.l2 // 4, target
    )


def _slides(found: ColumnReduction, row: Iter, vectors: int, tile: int, target: Target) -> bool:
    """Whether windows of neighbouring rows overlap so much that a long tile one vector wide loads
    far less than a wide one: each load serves several rows.

    Operands shared by all columns do not count: they serve several vectors just as well. Reductions
    over more than a window are left to wide tiles, since they keep their accumulators longer.
    """
    block, column = found.block, found.column
    reduced = {it.var: extent_of(it) or 1 for it in block.iters if it.kind == "reduce"}
    if len([n for n in reduced.values() if n > 1]) > _WINDOW_AXES:
        return False
    own = [a for a in accesses_of(block) if a.step(column.var) != 0 and _reads(a, reduced)]
    if not any(row.var in free_vars(i) and _reads_at(i, reduced) for a in own for i in a.indices):
        return False
    long, wide = _long_tile(found, row, target), max(1, tile // vectors)
    of_long, of_wide = (
        _count_tiles(row, rows) * sum(_loaded(a, row, reduced, rows) for a in own)
        for rows in (long, wide)
    )
    return vectors == 1 or of_long <= target.timing.narrow_tile_loads * of_wide


def _reads(access: Access, reduced: dict[Var, int]) -> bool:
    return any(_reads_at(i, reduced) for i in access.indices)


def _reads_at(index: Expr, reduced: dict[Var, int]) -> bool:
    return any(reduced.get(v, 1) > 1 for v in free_vars(index))


def _count_tiles(row: Iter, rows: int) -> float:
    """How many tiles of `rows` rows there are, the last perhaps partial."""
    extent = extent_of(row)
    return 1 / rows if extent is None else -(-extent // rows)


def _loaded(access: Access, row: Iter, reduced: dict[Var, int], rows: int) -> int:
    """Vectors of an operand that a tile of `rows` rows loads, per vector of columns."""
    count = 1
    for index in access.indices:
        terms = linear(index).terms
        window = {v: abs(terms[v]) for v, extent in reduced.items() if extent > 1 and v in terms}
        reach = 1 + sum(step * (reduced[v] - 1) for v, step in window.items())
        separate = prod(reduced[v] for v in window)
        if row.var in terms:
            reach, separate = reach + (rows - 1) * abs(terms[row.var]), separate * rows
        count *= min(reach, separate)
    return count


def _long_tile(found: ColumnReduction, row: Iter, target: Target) -> int:
    """Rows of a tile one vector wide: tall, so that overlapping windows share loads."""
    most = _TILE if target.vector_registers < 32 else _LONG_TILE
    return _even(row, most * vector_lanes(found.block, target) // found.lanes)


def _even(row: Iter, most: int) -> int:
    """Rows of a tile, at most `most`, so that all tiles have about as many."""
    extent = extent_of(row)
    return -(-extent // -(-extent // most)) if extent else most


# ---- applying a plan ----------------------------------------------------------------------------


def _schedule(s: Schedule, name: str, plan: ColumnsPlan, target: Target) -> None:
    """Vectorize along the output's innermost dimension, and reduce inside."""
    found, tile = plan.found, plan.tile
    s.restore(found.schedule)
    iters, width = found.block.iters, extent_of(found.column)
    loops = {it.var: loop for it, loop in zip(iters, s.loops(name), strict=True)}
    lanes = found.lanes if width is None else min(found.lanes, _power_of_two_below(width))
    columns, middle, vector = s.split(loops[found.column.var], None, tile.vectors, lanes)
    row_outer, row_inner = list[Loop](), list[Loop]()
    if found.row is not None:
        first, second = s.split(loops[found.row.var], None, tile.rows)
        row_outer, row_inner = [first], [second]
    inner = [loops[it.var] for it in iters if it.kind == "reduce"]
    shared, within_strip = [loops[it.var] for it in found.others], list[Loop]()
    if plan.strip is not None:
        *shared, rows = shared
        strip, rows = s.split(rows, None, plan.strip)
        shared, within_strip = [*shared, strip], [rows]
    outer = [*shared, *within_strip, *row_outer, columns]
    s.reorder(*outer, *inner, *row_inner, middle, vector)
    for loop in (*row_inner, middle):
        s.unroll(loop)
    s.vectorize(vector)
    ahead = _steps_ahead(found, tile, lanes, target)
    if ahead:
        s.annotate(inner[-1], "prefetch", ahead)
    _unroll_short(s, inner, _LARGE // (tile.rows * tile.vectors))
    place_epilogue(s, found.epilogue, outer[-1], lanes, target)
    look_up_rows(s, found.epilogue[-1], shared[-1:], target)
    # Without strips, the image is padded once, before everything else.
    pads = found.pads if plan.strip is not None else []
    if pads:
        place_padding(s, pads, shared[-1], target)
    within = shared if plan.serial_tiles else outer
    parallelize_outer(s, name, target, found.work, within=within)
    join_pixels(s, pads, target)


def _steps_ahead(found: ColumnReduction, tile: ColumnTile, lanes: int, target: Target) -> int:
    """How many steps of the reduction ahead a tile prefetches its operands; 0 for none.

    Only weights that exceed L2: they have been evicted since the last run.
    """
    own = constants_of(found.schedule.function)
    last = [it for it in found.block.iters if it.kind == "reduce"][-1]
    lines = 0
    for access in accesses_of(found.block):
        is_far = access.buffer in own and _bytes(access.buffer) > target.caches.l2 > 0
        if is_far and access.step(found.column.var) == 1 and access.step(last.var):
            row = tile.vectors * lanes * access.buffer.dtype.itemsize
            several = found.row is not None and access.step(found.row.var) != 0
            lines += (tile.rows if several else 1) * -(-row // target.caches.line)
    return max(1, target.timing.lines_in_flight // lines) if lines else 0


def _bytes(buffer: Buffer) -> int:
    """The size of a buffer; 0 where it is unknown."""
    extents = [d.value if isinstance(d, Const) else 0 for d in buffer.shape]
    return int(prod(extents)) * buffer.dtype.itemsize


def look_up_rows(s: Schedule, name: str, rows: list[Loop], target: Target) -> None:
    """Do table lookups by an epilogue's result a whole row at a time: beside the accumulators there
    are no registers for the table."""
    made = stores_of(s.block_of(name))[0].buffer
    for reader in [b.name for b in s.consumers(name)]:
        is_table = looks_up(s.block_of(reader), made)
        if is_table and rows and s.can("reverse_compute_at", reader, rows[0]):
            loops = s.reverse_compute_at(reader, rows[0])
            lanes = target.lanes(stores_of(s.block_of(reader))[0].buffer.dtype)
            _vectorize_row(s, loops, lanes)


def _vectorize_row(s: Schedule, loops: Sequence[Loop], lanes: int) -> None:
    """Vectorize the innermost loop, fused with the next one if it is shorter than a vector."""
    inner, extents = loops[-1], [s.loop_of(loop).extent for loop in loops]
    if not isinstance(extents[-1], Const) or extents[-1].value < 1:
        return
    own = int(extents[-1].value)
    if own < lanes and len(loops) > 1 and isinstance(extents[-2], Const):
        inner, own = s.fuse(*loops[-2:]), own * int(extents[-2].value)
    lanes = gcd(own, lanes)
    if lanes > 1:
        s.vectorize(s.split(inner, None, lanes)[1])


COLUMNS = Rule("columns", _match, _plan, _schedule)


def _power_of_two_below(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (max(1, number).bit_length() - 1)


def _unroll_short(s: Schedule, loops: list[Loop], most: int) -> None:
    """Unroll the innermost reduction loops, of at most `most` iterations in all."""
    count = 1
    for loop in reversed(loops):
        extent = s.loop_of(loop).extent
        if not isinstance(extent, Const) or count * int(extent.value) > min(_SHORT, most):
            return
        count *= int(extent.value)
        s.unroll(loop)


def _row_variable(block: Block, column: Iter) -> Iter | None:
    """The last spatial variable beside the column that is worth a tile."""
    found = [
        it
        for it in block.iters
        if it.kind == "spatial" and it.var is not column.var and (extent_of(it) or 64) > 1
    ]
    return found[-1] if found else None
