"""Sketches of reductions along contiguous elements: partial sums in the lanes of vectors; and, if a
whole function consists of such reductions and elementwise blocks, all of it row by row.

    m[i] = max x[i, k];  e[i, j] = exp(x[i, j] - m[i]);  s[i] = sum e[i, r];  y[i, j] = e / s[i]
    -->
    for i: m; e; s; y of this row, which stays in L1
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tilewright.ir import Store, walk
from tilewright.schedule import BlockRef, Loop, RefusedError
from tilewright.tune.spaces.knobs import Knobs
from tilewright.tune.spaces.sketch import Sketch
from tilewright.tune.spaces.sketched_tiles import column_of

#: Vectors of partial sums, and vectors of elements per iteration.
_PARTIAL: Final = (4, 2, 8, 1, 5, 3, 6)
_ELEMENTS: Final = (4, 1, 2, 8, 5, 3, 6)
#: Fewer lanes than this are added one by one.
_FEW: Final = 4
#: Most iterations of unrolled loops.
_SHORT: Final = 16


def row_by_row(sketch: Sketch) -> bool:
    """Move all blocks into the last one's loops over rows, if chosen; gives whether it was done."""
    s = sketch.s
    blocks = s.blocks()
    sums = [b for b in blocks if sketch.is_sum(b)]
    if len(blocks) < 2 or not sums or not all(_is_along_rows(sketch, b) for b in sums):
        return False
    space = sketch.knobs(blocks[-1])
    if not space.choice("by_rows", (True, False)):
        return False
    before = s.copy()
    try:
        _share_rows(sketch, space, sums, min(_rows_of(sketch, b) for b in sums))
    except RefusedError:
        s.restore(before)
        return False
    return True


def sum_rows(sketch: Sketch, block: BlockRef) -> set[str]:
    """Schedule a reduction by itself; gives the scheduled blocks."""
    s, space = sketch.s, sketch.knobs(block)
    known = {b.name for b in s.blocks()}
    count = _rows_of(sketch, block)
    if _is_along_rows(sketch, block):
        before = s.copy()
        try:
            _keep_partial(sketch, space, [block])
            _place(sketch, block, [b for b in s.blocks() if b.name not in known], count)
        except RefusedError:
            s.restore(before)
    own = [b for b in s.blocks() if b.name == block.name or b.name not in known]
    rows = list(s.loops(block))[:count]
    for part in own:
        _finish_sum(sketch, part, rows)
    sketch.share(space, rows)
    return {b.name for b in own}


def _share_rows(sketch: Sketch, space: Knobs, sums: Sequence[BlockRef], count: int) -> None:
    s = sketch.s
    _keep_partial(sketch, space, sums)
    *others, last = s.blocks()
    _place(sketch, last, others, count)
    rows = list(s.loops(last))[:count]
    vectors = space.choice("vectors", _ELEMENTS)
    for block in (*others, last):
        if s.block_of(block).init is not None:
            _finish_sum(sketch, block, rows)
        elif inside := _inside(sketch, block, rows):
            lanes = sketch.lanes(block)
            sketch.in_vectors(inside[-1], lanes, _fitting(sketch, inside[-1], lanes, vectors) or 1)
    if space.choice("merged", (False, True)):
        _merge_passes(sketch, rows)
    sketch.share(space, rows)


def _is_along_rows(sketch: Sketch, block: BlockRef) -> bool:
    """Whether a reduction is along contiguous elements, with one loop for each iterator."""
    iters, loops = sketch.s.block_of(block).iters, sketch.s.loops(block)
    plain = len(iters) == len(loops) and iters[-1].kind == "reduce"
    return plain and column_of(sketch, block) is None


def _rows_of(sketch: Sketch, block: BlockRef) -> int:
    return sum(it.kind == "spatial" for it in sketch.s.block_of(block).iters)


def _place(sketch: Sketch, last: BlockRef, others: Sequence[BlockRef], count: int) -> None:
    """Compute blocks for each row, just before they are read; last blocks first."""
    for block in reversed(others):
        if count:
            sketch.s.compute_at(block, sketch.s.loops(last)[count - 1])


def _keep_partial(sketch: Sketch, space: Knobs, sums: Sequence[BlockRef]) -> None:
    """Accumulate in vectors of partial sums, which are then added, and the last one by halves."""
    vectors = space.choice("partial", _PARTIAL)
    halved = space.choice("halved", (True, False))
    if not space.choice("by_lanes", (True, False)):
        return
    for block in sums:
        lanes = sketch.lanes(block)
        count = _fitting(sketch, sketch.s.loops(block)[-1], lanes, vectors)
        if lanes > 1 and count:
            _factor_out(sketch, block, _parts(count, lanes) if halved else [count * lanes])


def _fitting(sketch: Sketch, loop: Loop, lanes: int, vectors: int) -> int:
    """How many vectors to take of a loop: `vectors`, or fewer where it is short."""
    return min(vectors, sketch.extent(loop) // lanes)


def _parts(vectors: int, lanes: int) -> list[int]:
    """The number of partial sums after each step."""
    halves = [lanes >> k for k in range(1, lanes.bit_length()) if lanes >> k >= _FEW]
    return [vectors * lanes, *([lanes] if vectors > 1 else []), *halves]


def _factor_out(sketch: Sketch, block: BlockRef, widths: Sequence[int]) -> None:
    s = sketch.s
    store = next(x for x in walk(s.block_of(block).body) if isinstance(x, Store))
    for width in widths:
        _, lane = s.split(s.loops(block)[-1], None, width)
        if not s.can("rfactor", lane, len(store.indices)):
            return
        s.set_scope(s.rfactor(lane, len(store.indices)), 0, "local")


def _inside(sketch: Sketch, block: BlockRef, rows: Sequence[Loop]) -> list[Loop]:
    return [loop for loop in sketch.s.loops(block) if loop not in rows]


def _finish_sum(sketch: Sketch, block: BlockRef, rows: Sequence[Loop]) -> None:
    """Vectorize the lanes of partial sums, and unroll short loops."""
    s, inside = sketch.s, _inside(sketch, block, rows)
    iters = s.block_of(block).iters
    if inside and iters[-1].kind == "spatial" and len(inside) > 1:
        lanes = inside.pop()
        most, size = sketch.lanes(block), sketch.extent(lanes)
        sketch.in_vectors(lanes, min(most, size), size // most or 1)
    for loop in inside:
        if sketch.extent(loop) <= _SHORT and s.can("unroll", loop):
            s.unroll(loop)


def _merge_passes(sketch: Sketch, rows: Sequence[Loop]) -> None:
    """Merge the loop of a reduction with that of its operand if both have the same steps."""
    s = sketch.s
    for first, second in pairwise(s.blocks()):
        a, b = (_inside(sketch, x, rows) for x in (first, second))
        reads = any(c.name == second.name for c in s.consumers(first))
        if a and b and reads and sketch.is_sum(second) and s.can("merge", a[0], b[0]):
            s.merge(a[0], b[0])
