"""Reductions whose innermost output dimension is not reduced (depthwise convolution, pooling,
column sums, products with few rows): vectors along that dimension.

Short reductions keep a tile of accumulators in registers. Long ones over far-apart rows are
another matter (`long_columns`).
"""

from __future__ import annotations

from math import prod

from tilewright.arith import linear
from tilewright.ir import Block, Const, Expr, Iter, Var, free_vars
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    accesses_of,
    extent_of,
    has_own_loops,
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import (
    instances,
    parallelize_outer,
    vector_lanes,
)
from tilewright.schedule.rules.epilogue import begin_epilogue, place_epilogue
from tilewright.schedule.rules.padding import (
    inline_padding,
    join_pixels,
    place_padding,
    strip_of,
)
from tilewright.schedule.rules.reductions.long_columns import is_streamed, schedule_long
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: A reduction up to this long is written out.
_SHORT = 16
#: Accumulators that a tile keeps in registers.
_TILE = 12
#: The same of one vector each, for windows that overlap, beside as many operands.
_LONG_TILE = 14
#: Of the loads of a tile of several vectors, what a long one is worth that needs no more.
_FAR_LESS = 0.7
#: Axes of a window over an image.
_WINDOW_AXES = 2
#: Elements between the lanes of a vector that can still be loaded quickly.
_STEPS = range(5)


def vector_variable(block: Block) -> Iter | None:
    """The variable that walks neighbouring elements of the output and of whatever it moves in."""
    if not is_reduction(block):
        return None
    out = stores_of(block)[0]
    for it in block.iters:
        if it.kind != "spatial" or extent_of(it) == 1:
            continue
        if Access(out.buffer, out.indices).step(it.var) != 1:
            continue
        if all(a.step(it.var) in _STEPS for a in accesses_of(block)):
            return it
    return None


def _match(s: Schedule, name: str, _target: Target) -> Iter | None:
    return vector_variable(s.block_of(name)) if has_own_loops(s, name) else None


def _schedule(s: Schedule, name: str, column: Iter, target: Target) -> None:
    """Vectorize along the output's innermost dimension, reduce within."""
    block = s.block_of(name)
    work = instances(block) * operations(block)
    if is_streamed(block, target):
        schedule_long(s, name, column, target, work)
    else:
        _schedule_tiles(s, name, column, target, work)


COLUMNS = Rule("columns", _match, as_found, _schedule)


def _schedule_tiles(s: Schedule, name: str, column: Iter, target: Target, work: int) -> None:
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    lanes = vector_lanes(block, target)
    epilogue = begin_epilogue(s, name)
    pads = inline_padding(s, name, column)
    block = s.block_of(name)
    width = extent_of(column)
    row = _row_variable(block, column)
    vectors = 4 if width is None else max(1, min(4, width // lanes))
    slides = row is not None and _slides(block, row, column, vectors, target)
    vectors = 1 if slides else vectors
    lanes = lanes if width is None else min(lanes, 1 << (max(1, width).bit_length() - 1))
    outer_column, middle, vector = s.split(loops[column.var], None, vectors, lanes)
    row_outer, row_inner = list[Loop](), list[Loop]()
    if row is not None:
        rows = _sliding_tile(row, target) if slides else _even(row, max(1, _TILE // vectors))
        first, second = s.split(loops[row.var], None, rows)
        row_outer, row_inner = [first], [second]
    tiled = {it.var for it in (column, row) if it is not None}
    inner = [loops[it.var] for it in block.iters if it.kind == "reduce"]
    others = [it for it in block.iters if it.var not in tiled and it.kind == "spatial"]
    shared, apart = _cut_strips(s, name, pads, others, loops, target)
    if not apart:
        pads = []  # an image that is not cut into strips is padded once, before all else
    outer = [*shared, *apart, *row_outer, outer_column]
    s.reorder(*outer, *inner, *row_inner, middle, vector)
    for loop in (*row_inner, middle):
        s.unroll(loop)
    s.vectorize(vector)
    _unroll_short(s, inner)
    place_epilogue(s, epilogue, outer[-1], lanes, target)
    if pads:
        place_padding(s, pads, shared[-1], target)
    within = shared if pads or _share_enough(s, shared, target) else outer
    parallelize_outer(s, name, target, work, within=within)
    join_pixels(s, pads, target)


def _share_enough(s: Schedule, loops: list[Loop], target: Target) -> bool:
    """Whether some loops have work for every core, so that those over the tiles of a row can stay
    serial: only then is it known where a tile meets the edge of an image.

    A batch of unknown size may well be one; rows of unknown number are many.
    """
    extents = [s.loop_of(loop).extent for loop in loops]
    count = prod(int(e.value) for e in extents if isinstance(e, Const))
    return count >= target.cores or not all(isinstance(e, Const) for e in extents[1:])


def _slides(block: Block, row: Iter, column: Iter, vectors: int, target: Target) -> bool:
    """Whether windows of neighbouring rows overlap so much that a long tile of one vector loads
    far less than one of several vectors: what was loaded for one row serves the next.

    What all columns share serves several vectors of them just as well, and sums over more than a
    window need their accumulators for longer.
    """
    reduced = {it.var: extent_of(it) or 1 for it in block.iters if it.kind == "reduce"}
    if len([n for n in reduced.values() if n > 1]) > _WINDOW_AXES:
        return False
    own = [a for a in accesses_of(block) if a.step(column.var) != 0 and _reads(a, reduced)]
    if not any(row.var in free_vars(i) and _reads_at(i, reduced) for a in own for i in a.indices):
        return False
    long, wide = _sliding_tile(row, target), max(1, _TILE // vectors)
    of_long, of_wide = (
        _tiles(row, rows) * sum(_loaded(a, row, reduced, rows) for a in own)
        for rows in (long, wide)
    )
    return vectors == 1 or of_long <= _FAR_LESS * of_wide


def _reads(access: Access, reduced: dict[Var, int]) -> bool:
    return any(_reads_at(i, reduced) for i in access.indices)


def _reads_at(index: Expr, reduced: dict[Var, int]) -> bool:
    return any(reduced.get(v, 1) > 1 for v in free_vars(index))


def _tiles(row: Iter, rows: int) -> float:
    """Tiles of so many rows that there are; the last may have fewer."""
    extent = extent_of(row)
    return 1 / rows if extent is None else -(-extent // rows)


def _loaded(access: Access, row: Iter, reduced: dict[Var, int], rows: int) -> int:
    """How many vectors of an operand a tile of so many rows reads, for each vector of a row."""
    count = 1
    for index in access.indices:
        terms = linear(index).terms
        window = {v: abs(terms[v]) for v, extent in reduced.items() if extent > 1 and v in terms}
        reach = 1 + sum(step * (reduced[v] - 1) for v, step in window.items())
        apart = prod(reduced[v] for v in window)
        if row.var in terms:
            reach, apart = reach + (rows - 1) * abs(terms[row.var]), apart * rows
        count *= min(reach, apart)
    return count


def _sliding_tile(row: Iter, target: Target) -> int:
    """Rows of a tile of one vector: many share what is loaded, if their windows overlap."""
    return _even(row, _TILE if target.vector_registers < 32 else _LONG_TILE)


def _even(row: Iter, most: int) -> int:
    """Rows of a tile, at most so many: all tiles have as many, as far as that can be."""
    extent = extent_of(row)
    return most if extent is None else -(-extent // -(-extent // most))


def _cut_strips(
    s: Schedule,
    name: str,
    pads: list[str],
    others: list[Iter],
    loops: dict[Var, Loop],
    target: Target,
) -> tuple[list[Loop], list[Loop]]:
    """Loops down to one over strips of padded rows, and the loop over the rows of a strip."""
    own = [loops[it.var] for it in others]
    last = others[-1] if others else None
    if not pads or last is None:
        return own, []
    made = {s.block_of(p).writes[0].buffer for p in pads}
    image = next(a for a in accesses_of(s.block_of(name)) if a.buffer in made)
    moves = any(last.var in free_vars(i) for i in image.indices)
    rows = strip_of(s, name, image, last, target) if moves else None
    if rows is None:
        return own, []
    # Few channels are cut into more strips, so that every core has some.
    apart = prod(extent_of(it) or target.cores for it in others[:-1])
    strips = max(-(-(extent_of(last) or 1) // rows), -(-2 * target.cores // apart))
    strip, within = s.split(own[-1], None, max(1, -(-(extent_of(last) or 1) // strips)))
    return [*own[:-1], strip], [within]


def _unroll_short(s: Schedule, loops: list[Loop]) -> None:
    """Write the innermost reduction loops out, as long as they are short together."""
    count = 1
    for loop in reversed(loops):
        extent = s.loop_of(loop).extent
        if not isinstance(extent, Const) or count * int(extent.value) > _SHORT:
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
