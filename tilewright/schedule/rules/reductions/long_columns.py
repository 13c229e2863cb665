"""Long reductions down columns of far-apart rows (column sums, products with few rows).

Wide strips are walked a few rows at a time, with the accumulators in L1, so that memory is read in
order.

    for strip (parallel):
        for a few rows: for vectors of the strip: accumulators += rows
        output = accumulators

Where the sums of all columns fit L1 and the rows come from memory, every core reads whole rows
instead, and the sums of the cores are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tilewright.ir import Block, Iter, Load, Var, all_exprs
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.ahead import read_ahead
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    extent_of,
    has_own_loops,
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vector_lanes
from tilewright.schedule.rules.reductions.vectors import vector_variable
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Reductions of more elements than this are long.
_LONG = 64
#: The value assumed for an extent that is known only at run time.
_UNKNOWN = 1024


class LongColumns(NamedTuple):
    """A block that is such a reduction, and the variable to vectorize."""

    block: Block
    column: Iter

    @property
    def rows(self) -> list[Iter]:
        """The other variables of the output."""
        spatial = [it for it in self.block.iters if it.kind == "spatial"]
        return [it for it in spatial if it.var is not self.column.var]

    @property
    def itemsize(self) -> int:
        return stores_of(self.block)[0].buffer.dtype.itemsize

    def is_in_memory(self, target: Target) -> bool:
        """Whether the operand is too large for L2."""
        return instances(self.block) * self.itemsize > target.caches.l2


@dataclass(frozen=True)
class LongColumnsPlan:
    """How such a reduction is cut."""

    found: LongColumns
    lanes: int
    #: Whether every core reads whole rows of its own, into sums for all columns.
    by_parts: bool
    #: Columns that fill whole cache lines; the rest is reduced separately.
    whole: int | None
    #: Columns of a strip, and the vectors and rows of it that are read at a time.
    width: int
    vectors: int
    rows_at_a_time: int

    @property
    def shared_rows(self) -> list[Iter]:
        """The rows of the output; none where columns are partitioned, which needs a single row."""
        return self.found.rows if self.whole == extent_of(self.found.column) else []


def is_long(block: Block, target: Target) -> bool:
    """Whether a reduction is long, and over far-apart rows or to one dimension from memory."""
    reduced = [it for it in block.iters if it.kind == "reduce"]
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load)]
    steps = [Access(e.buffer, e.indices).step(reduced[-1].var) for e in loads]
    far = any(s is not None and abs(s) * 4 >= target.timing.strip_stride for s in steps)
    spatial = [it for it in block.iters if it.kind == "spatial"]
    alone = len(spatial) == 1 and LongColumns(block, spatial[0]).is_in_memory(target)
    return len(reduced) == 1 and _length(reduced) > _LONG and (far or alone)


def is_skinny(c: Contraction, target: Target) -> bool:
    """Whether a product has so few rows that it is memory-bound on the other operand."""
    depth, timing = c.reduced[-1], target.timing
    step = c.b.step(depth.var)
    far = step is not None and abs(step) * c.b.buffer.dtype.itemsize >= timing.strip_stride
    few = not c.batch and _length(c.rows) <= timing.memory_bound_rows
    return far and few and _length(c.reduced) > _LONG


def _match(s: Schedule, name: str, target: Target) -> LongColumns | None:
    block = s.block_of(name)
    column = vector_variable(block) if has_own_loops(s, name) else None
    return None if column is None or not is_long(block, target) else LongColumns(block, column)


# ---- decisions ----------------------------------------------------------------------------------


def _plan(found: LongColumns, target: Target, choices: Choices) -> LongColumnsPlan:
    lanes, extent = vector_lanes(found.block, target), extent_of(found.column)
    # Whole cache lines at a time: rows a power of two apart map to few cache sets.
    line = max(1, target.caches.line // found.itemsize // lanes)
    can = _can_go_by_parts(found, line * lanes, target)
    if choices.choose("by_parts", (True, False) if can else (False,)):
        lines = choices.choose("lines", _even_lines(extent or 0, line * lanes, target))
        return LongColumnsPlan(found, lanes, True, extent, extent or 0, line * lines, 1)
    whole = extent
    if extent is not None and _length(found.rows) == 1 and extent // (line * lanes):
        whole = extent // (line * lanes) * (line * lanes)
    results = _results(found.rows if whole == extent else [], target)
    width = choices.choose("width", _strip_widths(whole, results, target, lanes))
    # Whole rows from memory are read fastest one by one, from end to end.
    in_memory = results == 1 and found.is_in_memory(target)
    in_order = in_memory and whole is not None and width >= whole
    line = min(line, width // lanes)
    even = _even_lines(width, line * lanes, target) if in_order else (1,)
    lines = choices.choose("lines", even)
    own = 1 if in_order else max(2, target.timing.rows_at_a_time // results)
    rows = choices.choose("rows", (own, *(n for n in (1, 2, 4, 8) if n != own)))
    return LongColumnsPlan(found, lanes, False, whole, width, line * lines, rows)


def _can_go_by_parts(found: LongColumns, line: int, target: Target) -> bool:
    """Whether every core can read whole rows of its own from memory, into sums for all columns."""
    last, cores = found.block.iters[-1], target.cores
    width, count = extent_of(found.column), extent_of(last)
    if last.kind != "reduce" or width is None or count is None:
        return False
    is_even = width % line == 0 and count % cores == 0
    fits = count >= _LONG * cores and width <= _most_columns(1, target, 1)
    return (
        cores > 1 and is_even and fits and _length(found.rows) == 1 and found.is_in_memory(target)
    )


def _results(rows: Sequence[Iter], target: Target) -> int:
    """How many rows of the output share a strip, as those of a product with few rows do; else 1."""
    return _length(rows) if rows and _length(rows) <= target.timing.memory_bound_rows else 1


def _even_lines(width: int, line: int, target: Target) -> list[int]:
    """How many lines of a row can be read at a time without a remainder, the most first."""
    most = target.timing.lines_at_a_time
    return [n for n in range(most, 0, -1) if width % (n * line) == 0] or [1]


def _strip_widths(extent: int | None, rows: int, target: Target, lanes: int) -> list[int]:
    """Candidate widths of a strip: sums and operands share L1, and every core has a strip."""
    own = most = _most_columns(rows, target, lanes)
    if extent is not None:
        line = max(lanes, target.caches.line // 4)
        share = -(-extent // (target.cores * line)) * line
        own = max(lanes, min(most, share))
    return [own, *(n for n in (own // 2, own * 2) if n >= lanes and n % lanes == 0)]


def _most_columns(rows: int, target: Target, lanes: int) -> int:
    """The most columns whose accumulators leave room in L1 for operands."""
    near = target.caches.l1d // (2 if rows == 1 else 4)
    return max(lanes, near // (4 * rows) // lanes * lanes)


def _length(iters: Sequence[Iter]) -> int:
    return prod(extent_of(it) or _UNKNOWN for it in iters)


# ---- applying a plan ----------------------------------------------------------------------------


def _schedule(s: Schedule, name: str, plan: LongColumnsPlan, target: Target) -> None:
    """Reduce strips of columns, or all columns in parts of the rows."""
    if plan.by_parts:
        _schedule_parts(s, name, plan, target)
    else:
        _schedule_strips(s, name, plan, target)


LONG_COLUMNS = Rule("long_columns", _match, _plan, _schedule)


def _schedule_strips(s: Schedule, name: str, plan: LongColumnsPlan, target: Target) -> None:
    found, lanes = plan.found, plan.lanes
    block, column = found
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    (reduced,) = (it for it in block.iters if it.kind == "reduce")
    work, out = instances(block) * operations(block), stores_of(block)[0].buffer
    is_whole = plan.whole == extent_of(column)
    if not is_whole and plan.whole is not None:
        _separate_rest(s, loops, column, reduced, plan.whole)
    copy = s.cache_write(name, 0, "local") if is_whole and out in s.function.buffers else None
    rows = [loops[it.var] for it in plan.shared_rows]
    results = _results(plan.shared_rows, target)
    shared, outer = (rows, []) if _length(plan.shared_rows) == results else ([], rows)
    strip, middle, vectors, vector = s.split(
        loops[column.var], None, max(1, plan.width // (plan.vectors * lanes)), plan.vectors, lanes
    )
    depth, down = s.split(loops[reduced.var], None, plan.rows_at_a_time)
    s.reorder(*outer, strip, depth, middle, *shared, down, vectors, vector)
    if results == 1 and found.is_in_memory(target):
        read_ahead(s, middle, plan.vectors * lanes * found.itemsize, target)
    for loop in (*shared, down, vectors):
        s.unroll(loop)
    s.vectorize(vector)
    if copy is not None:
        after = s.reverse_compute_at(copy, strip)
        if after:
            s.vectorize(s.split(after[-1], None, lanes)[-1])
    parallelize_outer(s, name, target, work, within=[*outer, strip])


def _separate_rest(
    s: Schedule, loops: dict[Var, Loop], column: Iter, reduced: Iter, whole: int
) -> None:
    """Reduce the columns past the last whole cache line separately; `loops` then cover the others.

    for i: for k: S[i] += X[k, i]                     99 columns
    -->
    for i: for k: S[i] += X[k, i]                     96
    for k: for i: S[96 + i] += X[k, 96 + i]           3
    """
    loops[column.var], rest = s.loop_partition(loops[column.var], whole)
    nests = [s.loops(b) for b in s.blocks()]
    loops[reduced.var] = next(nest[-1] for nest in nests if loops[column.var] in nest)
    s.reorder(next(nest[-1] for nest in nests if rest in nest), rest)
    s.unroll(rest)


def _schedule_parts(s: Schedule, name: str, plan: LongColumnsPlan, target: Target) -> None:
    """Each core reads its part of the rows in order; the sums of the cores are added up.

    for p in parallel: for k of p: for i: S_rf[p, i] += X[k, i]
    for i: for p: S[i] += S_rf[p, i]
    """
    found, lanes = plan.found, plan.lanes
    variables = [it.var for it in found.block.iters]
    across, down = variables.index(found.column.var), len(variables) - 1
    part, _ = s.split(s.loops(name)[down], target.cores, None)
    made = s.rfactor(part, 0).name
    copy = s.cache_write(made, 0, "local")
    *around, part, depth = s.loops(made)
    columns = around.pop(across)
    middle, vectors, vector = s.split(columns, None, plan.vectors, lanes)
    s.reorder(part, *around, depth, middle, vectors, vector)
    read_ahead(s, middle, plan.vectors * lanes * found.itemsize, target)
    s.unroll(vectors)
    s.vectorize(vector)
    s.vectorize(s.split(s.reverse_compute_at(copy, part)[-1], None, lanes)[-1])
    s.parallel(part)
    joined = s.loops(name)
    outer, vector = s.split(joined[across], None, lanes)
    s.reorder(outer, joined[down], vector)
    s.vectorize(vector)
