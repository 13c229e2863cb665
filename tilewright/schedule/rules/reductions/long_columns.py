"""Long reductions down columns of far-apart rows (column sums, products with few rows).

They walk wide strips, a few rows at a time, with the accumulators in the nearest cache: memory is
read in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir import Block, Iter, Load, Var, all_exprs
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.ahead import read_ahead
from tilewright.schedule.rules.analysis import Access, Contraction, extent_of, stores_of
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vector_lanes
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: A reduction is long from here on.
_LONG = 64
#: Rows that a strip takes at a time.
_ROWS_AT_A_TIME = 4
#: Cache lines of a row that are read at a time where rows are read one by one.
_LINES_IN_ORDER = 4


def is_streamed(block: Block, target: Target) -> bool:
    """Whether a reduction goes down long columns of far-apart rows, or of all that is read."""
    reduced = [it for it in block.iters if it.kind == "reduce"]
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load)]
    steps = [Access(e.buffer, e.indices).step(reduced[-1].var) for e in loads]
    far = any(s is not None and abs(s) * 4 >= target.timing.strip_stride for s in steps)
    alone = sum(it.kind == "spatial" for it in block.iters) == 1
    return (
        len(reduced) == 1
        and _length(reduced) > _LONG
        and (far or (alone and _is_far(block, target)))
    )


def _is_far(block: Block, target: Target) -> bool:
    """Whether what a sum reads comes from memory."""
    return instances(block) * _itemsize(block) > target.caches.l2


def is_skinny(c: Contraction, target: Target) -> bool:
    """Whether a product has so few rows that reading the other operand is all that counts."""
    depth, timing = c.reduced[-1], target.timing
    step = c.b.step(depth.var)
    far = step is not None and abs(step) * c.b.buffer.dtype.itemsize >= timing.strip_stride
    few = not c.batch and _length(c.rows) <= timing.memory_bound_rows
    return far and few and _length(c.reduced) > _LONG


def schedule_long(s: Schedule, name: str, column: Iter, target: Target, work: int) -> None:
    """Walk strips of columns, or all columns in parts of the rows."""
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    (reduced,) = (it for it in block.iters if it.kind == "reduce")
    lanes = vector_lanes(block, target)
    out = stores_of(block)[0].buffer
    # Whole cache lines at a time: rows a power of two apart share few places in the cache.
    line = max(1, target.caches.line // _itemsize(block) // lanes)
    if _goes_by_parts(block, column, line * lanes, target):
        _schedule_parts(s, name, column, line, lanes, target)
        return
    rows = [it for it in block.iters if it.kind == "spatial" and it.var is not column.var]
    extent = extent_of(column)
    if _length(rows) == 1 and extent is not None:
        extent = _cut_uneven(s, loops, column, reduced, line * lanes)
    is_even = extent == extent_of(column)
    copy = s.cache_write(name, 0, "local") if is_even and out in s.function.buffers else None
    # A loop around both parts stays where it is, for its one iteration.
    rows = rows if is_even else []
    is_few = _length(rows) <= target.timing.memory_bound_rows
    shared = [loops[it.var] for it in rows] if is_few else []
    apart = [loops[it.var] for it in rows if loops[it.var] not in shared]
    results = _length(rows) if shared else 1
    width = _strip_width(extent, results, target, lanes)
    is_far = _is_far(block, target)
    # Whole rows from memory are read fastest one by one, from end to end.
    in_order = results == 1 and is_far and extent is not None and width >= extent
    line = min(line, width // lanes)
    wide = line * (_even_lines(width, line * lanes) if in_order else 1)
    strip, middle, vectors, vector = s.split(
        loops[column.var], None, max(1, width // (wide * lanes)), wide, lanes
    )
    at_a_time = 1 if in_order else max(2, _ROWS_AT_A_TIME // results)
    depth, down = s.split(loops[reduced.var], None, at_a_time)
    s.reorder(*apart, strip, depth, middle, *shared, down, vectors, vector)
    if is_far and results == 1:
        read_ahead(s, middle, wide * lanes * _itemsize(block), target)
    for loop in (*shared, down, vectors):
        s.unroll(loop)
    s.vectorize(vector)
    if copy is not None:
        after = s.reverse_compute_at(copy, strip)
        if after:
            s.vectorize(s.split(after[-1], None, lanes)[-1])
    parallelize_outer(s, name, target, work, within=[*apart, strip])


def _goes_by_parts(block: Block, column: Iter, line: int, target: Target) -> bool:
    """Whether every core reads whole rows of its own from memory, with sums for all columns."""
    rows = [it for it in block.iters if it.kind == "spatial" and it.var is not column.var]
    width, count, cores = extent_of(column), extent_of(block.iters[-1]), target.cores
    if block.iters[-1].kind != "reduce" or width is None or count is None:
        return False
    is_even = width % line == 0 and count % cores == 0
    is_long = count >= _LONG * cores and width <= _most_columns(1, target, 1)
    return cores > 1 and is_even and is_long and _length(rows) == 1 and _is_far(block, target)


def _schedule_parts(
    s: Schedule, name: str, column: Iter, line: int, lanes: int, target: Target
) -> None:
    """A part of the rows for every core, read in order; what they make is added up in the end.

    for p in parallel: for k of p: for i: S_rf[p, i] += X[k, i]
    for i: for p: S[i] += S_rf[p, i]
    """
    block = s.block_of(name)
    variables = [it.var for it in block.iters]
    across, down = variables.index(column.var), len(variables) - 1
    part, _ = s.split(s.loops(name)[down], target.cores, None)
    made = s.rfactor(part, 0).name
    copy = s.cache_write(made, 0, "local")
    *around, part, depth = s.loops(made)
    columns = around.pop(across)
    wide = line * _even_lines(extent_of(column) or 0, line * lanes)
    middle, vectors, vector = s.split(columns, None, wide, lanes)
    s.reorder(part, *around, depth, middle, vectors, vector)
    read_ahead(s, middle, wide * lanes * _itemsize(block), target)
    s.unroll(vectors)
    s.vectorize(vector)
    s.vectorize(s.split(s.reverse_compute_at(copy, part)[-1], None, lanes)[-1])
    s.parallel(part)
    joined = s.loops(name)
    outer, vector = s.split(joined[across], None, lanes)
    s.reorder(outer, joined[down], vector)
    s.vectorize(vector)


def _even_lines(width: int, line: int) -> int:
    """How many lines of a row are read at a time, so that none are left."""
    return max((n for n in range(1, _LINES_IN_ORDER + 1) if width % (n * line) == 0), default=1)


def _cut_uneven(s: Schedule, loops: dict[Var, Loop], column: Iter, reduced: Iter, size: int) -> int:
    """Take columns that fill no line apart; gives how many are left, which `loops` then run over.

    for i: for k: S[i] += X[k, i]                     99 columns
    -->
    for i: for k: S[i] += X[k, i]                     96
    for k: for i: S[96 + i] += X[k, 96 + i]           3
    """
    extent = extent_of(column)
    assert extent is not None
    whole = extent // size * size
    if whole in (0, extent):
        return extent
    loops[column.var], rest = s.loop_partition(loops[column.var], whole)
    nests = [s.loops(b) for b in s.blocks()]
    loops[reduced.var] = next(nest[-1] for nest in nests if loops[column.var] in nest)
    s.reorder(next(nest[-1] for nest in nests if rest in nest), rest)
    s.unroll(rest)
    return whole


def _itemsize(block: Block) -> int:
    return stores_of(block)[0].buffer.dtype.itemsize


def _length(iters: Sequence[Iter]) -> int:
    return prod(extent_of(it) or 1024 for it in iters)


def _strip_width(extent: int | None, rows: int, target: Target, lanes: int) -> int:
    """Columns of a strip: accumulators share L1 with what is read, and every core has a strip."""
    most = _most_columns(rows, target, lanes)
    if extent is None:
        return most
    line = max(lanes, target.caches.line // 4)
    share = -(-extent // (target.cores * line)) * line
    return max(lanes, min(most, share))


def _most_columns(rows: int, target: Target, lanes: int) -> int:
    """Columns whose accumulators leave room in L1 for what is read."""
    near = target.caches.l1d // (2 if rows == 1 else 4)
    return max(lanes, near // (4 * rows) // lanes * lanes)
