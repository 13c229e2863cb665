"""Sketches of reductions into contiguous elements: tiles of the result stay in registers.

for f: for i: for j: for c: y[f, i, j] += w[f, c] * x[c, i, j]
-->
for f0: for i0: for j0: for c: for f1, i1, j1: y[f0 + f1, i0 + i1, j0 + j1] += …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.ir import Store, free_vars, loads_in, walk
from tilewright.schedule import BlockRef, Loop
from tilewright.support.errors import UserError
from tilewright.tune.spaces.knobs import Knobs
from tilewright.tune.spaces.sketch import UNKNOWN, Sketch

#: Rows, vectors of columns and elements of a third dimension in a tile, most likely first.
_ROWS: Final = (6, 4, 8, 2, 12, 1, 3, 16)
_VECTORS: Final = (2, 1, 3, 4, 7, 5, 6, 8)
_THIRD: Final = (1, 4, 2, 8, 6, 3)
#: Unroll factors of a long reduction, and the extent up to which it is unrolled completely.
_DEPTHS: Final = (1, 2, 4, 8)
_SHORT: Final = 7
#: Most iterations of an unrolled loop over the elements of a tile.
_LONGEST: Final = 16
#: Limits of a tile: vectors per register, and instructions of the unrolled code.
_HELD: Final = 3
_CODE: Final = 512
#: Vectors may have a width that divides the columns, up to this multiple of the lanes.
_WIDEST: Final = 4


@dataclass
class _Tiled:
    """The loops of a block by their role."""

    #: Outside the tile, outermost first.
    outer: list[Loop]
    #: Reduction loops, around the tile.
    sums: list[Loop]
    #: Inside the tile: unrolled loops, and the vectorized one.
    unrolled: list[Loop]
    vector: Loop


def column_of(sketch: Sketch, block: BlockRef) -> int | None:
    """The spatial iterator along which vectors can be loaded and stored: that of the result's last
    index, if no operand is strided along it."""
    found = sketch.s.block_of(block)
    store = next(x for x in walk(found.body) if isinstance(x, Store))
    if not store.indices:
        return None
    spatial = [k for k, it in enumerate(found.iters) if it.kind == "spatial"]
    named = [k for k in spatial if found.iters[k].var in free_vars(store.indices[-1])]
    if not named:
        return None
    var = found.iters[named[0]].var
    across = [x for x in loads_in(store.value) if any(var in free_vars(i) for i in x.indices[:-1])]
    return None if across else named[0]


def tile(sketch: Sketch, block: BlockRef) -> set[str]:
    """Keep a tile of the result in registers; gives the scheduled blocks."""
    s, space, column = sketch.s, sketch.knobs(block), column_of(sketch, block)
    after = _epilogue_of(sketch, block)
    if column is None or len(s.loops(block)) != len(s.block_of(block).iters):
        return {block.name, after.name}
    panel = _panel(sketch, space, block, column)
    # Before tiling, as copies of operands get loops of their own.
    tiled, at = _cut(sketch, space, block, column)
    s.reorder(*tiled.outer, *tiled.sums, *tiled.unrolled, tiled.vector)
    _finish(sketch, block, after, tiled)
    if panel is not None:
        _place_panel(sketch, panel, at, sketch.extent(tiled.vector))
    sketch.share(space, tiled.outer)
    return {block.name, after.name, *([panel.name] if panel else [])}


def _cut(sketch: Sketch, space: Knobs, block: BlockRef, column: int) -> tuple[_Tiled, Loop]:
    """Split loops into tiles; also gives the outer loop over columns."""
    s, iters, loops = sketch.s, sketch.s.block_of(block).iters, list(sketch.s.loops(block))
    spatial = [k for k, it in enumerate(iters) if it.kind == "spatial"]
    long = [k for k in reversed(spatial) if k != column and sketch.extent(loops[k]) > 1]
    rows, third = (*long[:1], None)[0], _third_of(sketch, block, long[1:])
    lanes = space.choice("lanes", _widths(sketch, block, loops[column]))
    jo, ju, jv = s.split(loops[column], None, space.choice("vectors", _VECTORS), lanes)
    outer, inner = [jo], [ju]
    if rows is not None:
        io, ii = s.split(loops[rows], None, space.choice("rows", _ROWS))
        by_columns = space.choice("order", ("columns", "rows")) == "columns"
        outer, inner = [jo, io] if by_columns else [io, jo], [ii, *inner]
    if third is not None:
        to, ti = s.split(loops[third], None, space.choice("third", _THIRD))
        is_outside = space.choice("third_order", ("outside", "inside")) == "outside"
        outer, inner = [to, *outer] if is_outside else [*outer, to], [ti, *inner]
    others = [loops[k] for k in spatial if k not in (column, rows, third)]
    sums = [loop for k, loop in enumerate(loops) if k not in spatial]
    sums, unrolled = _unrolled_sums(sketch, space, sums)
    _require_small(sketch, prod(map(sketch.extent, inner)) * lanes // sketch.lanes(block), unrolled)
    return _Tiled([*others, *outer], sums, [*unrolled, *inner], jv), jo


def _require_small(sketch: Sketch, vectors: int, sums: Sequence[Loop]) -> None:
    """Refuse tiles that exceed the registers or the code size, before code is generated."""
    code = vectors * prod(map(sketch.extent, sums))
    if vectors > _HELD * sketch.target.vector_registers or code > _CODE:
        raise UserError(f"a tile of {vectors} vectors takes too many registers or too much code")


def _third_of(sketch: Sketch, block: BlockRef, among: Sequence[int]) -> int | None:
    """The innermost of these spatial iterators on which some operand does not depend, so that
    several elements share its loads."""
    found = sketch.s.block_of(block)
    store = next(x for x in walk(found.body) if isinstance(x, Store))
    read = [x for x in loads_in(store.value) if x.buffer is not store.buffer]
    used = [{v for i in x.indices for v in free_vars(i)} for x in read]
    return next((k for k in among if any(found.iters[k].var not in vs for vs in used)), None)


def _widths(sketch: Sketch, block: BlockRef, column: Loop) -> list[int]:
    """Vector widths: the register's lanes, half and twice as many, or widths that divide the
    columns, which may leave the last register partly empty."""
    extent, lanes = sketch.extent(column), sketch.lanes(block)
    if extent <= lanes:
        return [extent]
    even = [w for w in range(lanes // 2 + 1, min(extent, _WIDEST * lanes) + 1) if extent % w == 0]
    whole = [w for w in even if extent % lanes and extent < UNKNOWN]
    return list(dict.fromkeys([lanes, *reversed(whole[-3:]), max(1, lanes // 2), 2 * lanes]))


def _unrolled_sums(sketch: Sketch, space: Knobs, sums: list[Loop]) -> tuple[list[Loop], list[Loop]]:
    """The reduction loops, split into those around the tile and those unrolled in it: all of short
    ones, such as windows, or a part of a long one."""
    short = 0
    while short < min(2, len(sums)) and sketch.extent(sums[-1 - short]) <= _SHORT:
        short += 1
    if short:
        count = space.choice("whole_sums", tuple(range(short + 1)))
        return sums[: len(sums) - count], sums[len(sums) - count :]
    depth = space.choice("depth", _DEPTHS)
    if depth == 1 or not sums:
        return sums, []
    outer, inner = sketch.s.split(sums[-1], None, depth)
    return [*sums[:-1], outer], [inner]


# ---- operands and epilogues ----------------------------------------------------------------------


def _panel(sketch: Sketch, space: Knobs, block: BlockRef, column: int) -> BlockRef | None:
    """A copy of the operand that is read along columns, if chosen."""
    found = sketch.s.block_of(block)
    var = found.iters[column].var
    store = next(x for x in walk(found.body) if isinstance(x, Store))
    along = [x for x in loads_in(store.value) if var in free_vars(x.indices[-1])]
    operands = dict.fromkeys(x.buffer for x in along if x.buffer is not store.buffer)
    if len(operands) != 1 or not space.choice("panel", (False, True)):
        return None
    (operand,) = operands
    return sketch.s.cache_read(block, operand.name, "global")


def _place_panel(sketch: Sketch, panel: BlockRef, column: Loop, lanes: int) -> None:
    """Copy the columns of an operand contiguously, for all tiles that share them."""
    own = sketch.s.compute_at(panel, column)
    if own:
        sketch.in_vectors(own[-1], lanes)


def _epilogue_of(sketch: Sketch, block: BlockRef) -> BlockRef:
    """The block that takes a tile's result: its consumer, or a copy out of registers."""
    s = sketch.s
    readers = s.consumers(block)
    buffer = next(x for x in walk(s.block_of(block).body) if isinstance(x, Store)).buffer
    is_inner = buffer not in s.function.params
    if is_inner and len(readers) == 1 and not sketch.is_sum(readers[0]):
        return readers[0]
    return s.cache_write(block, 0, "local")


def _finish(sketch: Sketch, block: BlockRef, after: BlockRef, tiled: _Tiled) -> None:
    """Compute the epilogue after each tile, and unroll the loops in the tile."""
    s, lanes = sketch.s, sketch.extent(tiled.vector)
    if s.can("reverse_compute_at", after, tiled.outer[-1]):
        own = list(s.reverse_compute_at(after, tiled.outer[-1]))
        if own:
            own[-1] = sketch.in_vectors(own[-1], lanes) or own[-1]
        # Registers cannot be indexed: an accumulator read in a loop would be spilled to memory.
        for loop in own:
            if sketch.extent(loop) <= _LONGEST:
                s.unroll(loop)
    if s.can("set_scope", block, 0, "local"):
        s.set_scope(block, 0, "local")
    for loop in tiled.unrolled:
        s.unroll(loop)
    sketch.vectorize(tiled.vector)
