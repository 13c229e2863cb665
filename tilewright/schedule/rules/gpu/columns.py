"""Few results of long sums over non-contiguous elements: threads of a block share each sum.

for n: for k: S[n] += X[k, n]
-->
for n0 in blocks:
    for y, x in threads: for k: for n1 in lanes: part[y, n1] += X[k * Y + y, …]       a vector each
    for h, n in threads: for y: few[h, n] += part[y * 16 + h, n]                      then fewer
    for n in threads: for h: S[n] += few[h, n]                       with the epilogue

The launch takes as long as the busiest multiprocessor; where that is far longer than an even
distribution would take, the sums are split into parts (`parts`). With a few rows times a matrix,
all of a thread's sums are in its registers, so that the matrix is read once; from four rows on,
tensor instructions are faster, though most of what they multiply is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from tilewright.ir import Block, Const, const, free_vars, substitute
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    accesses_of,
    as_contraction,
    extent_of,
    has_own_loops,
    stores_of,
)
from tilewright.schedule.rules.gpu.grid import (
    THREADS,
    count_of,
    extent_of_loop,
    feeds_only,
    fused,
    only_reduces,
)
from tilewright.schedule.rules.gpu.operands import loops_of
from tilewright.schedule.rules.gpu.product_plan import is_by_large_matrix, match_product
from tilewright.schedule.rules.gpu.results import following, lanes_of_sums, result_loops
from tilewright.schedule.rules.gpu.warp_tiles import has_instruction
from tilewright.schedule.rules.reductions.rows import walks_neighbours
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Gpu, Target

#: Threads of a block, the most columns of a block, and the fewest elements that a thread sums.
_THREADS: Final = 512
_WIDEST: Final = 32
_LEAST_EACH: Final = 4
#: This many threads join the parts of a sum before one thread joins their results.
_JOINING: Final = 16
#: Elements of a sum that a thread reads at a time, and the shortest sum.
_TOGETHER: Final = 8
_LEAST: Final = 128
#: The most rows, and the most sums of all threads of a block: they fit shared memory.
_MOST_ROWS: Final = 8
_MOST_SUMS: Final = 1 << 15
#: The smallest memory transfer in bytes, and the bytes per second that one multiprocessor reads.
_SECTOR: Final = 32
_OWN_BANDWIDTH: Final = 40e9


class ColumnSums(NamedTuple):
    """The number of columns, how many of them are contiguous, their length, and the rows that they
    are multiplied by; the columns that a thread reads at once, and the bytes of an element."""

    columns: int
    neighbours: int
    length: int
    rows: int
    lanes: int
    size: int


class Columns(NamedTuple):
    """Rows, columns of a block and of a thread, and threads that share a sum and that join it."""

    rows: int
    width: int
    lanes: int
    sharing: int
    joining: int


def _match(s: Schedule, name: str, target: Target) -> ColumnSums | None:
    block = s.block_of(name)
    if not only_reduces(block) or len(stores_of(block)) != 1 or not has_own_loops(s, name):
        return None
    loops = s.loops(name)
    over = [loop for loop in loops if feeds_only(block, loop, "spatial")]
    results, length = count_of(s, over), count_of(s, [x for x in loops if x not in over])
    if not results or not length or length < _LEAST or walks_neighbours(s, name):
        return None
    out = stores_of(block)[0].buffer
    sizes = [a.buffer.dtype.itemsize for a in accesses_of(block) if a.buffer is not out]
    rows, neighbours = _rows(block), out.shape[-1] if out.shape else const(1)
    if not isinstance(neighbours, Const):
        return None
    lanes, columns = lanes_of_sums(s, name), results // rows
    found = ColumnSums(columns, int(neighbours.value), length, rows, lanes, max(sizes))
    gpu = target.gpu
    assert gpu is not None
    are_few = found.columns < gpu.multiprocessors * THREADS and rows <= _MOST_ROWS
    is_short = are_few and _time(found, _widths(found, gpu)[0], gpu) < _apart(found, gpu)
    return found if is_short else None


def _match_rows(s: Schedule, name: str, target: Target) -> ColumnSums | None:
    if _rows(s.block_of(name)) <= 1 or _goes_by_tensors(s, name, target):
        return None
    return _match(s, name, target)


def _goes_by_tensors(s: Schedule, name: str, target: Target) -> bool:
    """Whether tensor instructions compute the product, with rows padded with zeros."""
    found = match_product(s, name, target)
    return found is not None and is_by_large_matrix(found) and has_instruction(found, target)


def _rows(block: Block) -> int:
    """The rows multiplied by the columns, if rows are the outer dimensions of the result."""
    found = as_contraction(block) if only_reduces(block) else None
    if found is None or found.batch or not found.rows or not found.columns:
        return 1
    places = {index: k for k, index in enumerate(stores_of(block)[0].indices)}
    rows, columns = ([places[it.var] for it in side] for side in (found.rows, found.columns))
    return prod(extent_of(it) or 1 for it in found.rows) if max(rows) < min(columns) else 1


def _widths(found: ColumnSums, gpu: Gpu) -> list[int]:
    """Candidate numbers of columns per block, the best first."""
    widths = range(found.lanes, _WIDEST + 1, found.lanes)
    fitting = [w for w in widths if found.neighbours % w == 0]
    return sorted(fitting, key=lambda w: (_time(found, w, gpu), -w))


def _time(found: ColumnSums, width: int, gpu: Gpu) -> float:
    """Seconds that the busiest multiprocessor takes to read its part."""
    each = -(-found.columns // width // gpu.multiprocessors)
    moved = found.length * max(_SECTOR, width * found.size) * max(1, each)
    return moved / _OWN_BANDWIDTH


def _apart(found: ColumnSums, gpu: Gpu) -> float:
    """Seconds that two launches would take."""
    read = found.columns * found.length * found.size
    return read / gpu.bandwidth + gpu.launch_time * 1e-9


def _plan(found: ColumnSums, target: Target, choices: Choices) -> Columns:
    assert target.gpu is not None
    width = choices.choose("width", _widths(found, target.gpu)[:4])
    threads = min(_THREADS, _MOST_SUMS // (found.rows * found.lanes))
    least = max(_LEAST_EACH, 2 * found.rows)
    most = max(1, min(threads * found.lanes // width, found.length // least))
    even = [n for n in range(1, most + 1) if found.length % n == 0 and n % _JOINING == 0]
    sharing = even[-1] if even else most
    joining = min(_JOINING, _THREADS // (found.rows * width))
    return Columns(found.rows, width, found.lanes, sharing, joining)


def _schedule(s: Schedule, name: str, plan: Columns, _target: Target) -> None:
    last = following(s, name) or s.cache_write(name, 0, "local").name
    block = s.block_of(name)
    along = fused(s, [x for x in s.loops(name) if not feeds_only(block, x, "spatial")])
    _, own = s.split(along, None, plan.sharing)
    parts = s.rfactor(own, 0).name
    home = s.cache_write(parts, 0, "local").name
    made = [home]
    if plan.sharing > plan.joining:
        part = next(x for x in s.loops(name) if not feeds_only(s.block_of(name), x, "spatial"))
        made.append(s.rfactor(s.split(part, None, plan.joining)[1], 0).name)
    rows, columns = _cut(s, result_loops(s, last), plan.rows)
    grid, column = s.split(fused(s, columns), None, plan.width)
    s.reorder(grid, *rows, column)
    thread = fused(s, [*rows, column])
    s.bind(grid, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    _write_out(s, s.compute_at(name, thread))
    s.set_scope(name, 0, "local")
    for few in reversed(made):
        s.compute_at(few, grid)
        s.set_scope(few, 0, "shared")
    _by_vectors(s, parts, home, grid, plan.lanes)
    for few in made[1:]:
        spatial, others = _by_columns(s, few, grid)
        s.bind(fused(s, spatial), "threadIdx.x")
        _write_out(s, others)


def _cut(s: Schedule, loops: list[Loop], rows: int) -> tuple[list[Loop], list[Loop]]:
    """Split loops over results into those over `rows` rows and those over columns."""
    count = next(k for k in range(len(loops) + 1) if count_of(s, loops[:k]) == rows)
    return loops[:count], loops[count:]


def _by_vectors(s: Schedule, parts: str, home: str, grid: Loop, lanes: int) -> None:
    """Sum parts in registers, several columns per thread, and store them to shared memory."""
    (*rest, column), _ = _by_columns(s, home, grid)
    first = stores_of(s.block_of(home))[0].indices[0]
    (sharing,) = loops_of(s, home, first, grid)
    rows, vector = [x for x in rest if x != sharing], list[Loop]()
    if lanes > 1:
        column, *vector = s.split(column, None, lanes)
    s.reorder(sharing, column, *rows, *vector)
    thread = fused(s, [sharing, column])
    s.bind(thread, "threadIdx.x")
    own = list(s.compute_at(parts, thread))
    block = s.block_of(parts)
    sums = [x for x in own if feeds_only(block, x, "spatial")]
    (along,) = [x for x in own if x not in sums]
    if sums:
        s.reorder(along, *sums)
    for loops in ([*rows, *vector], sums):
        if lanes > 1:
            s.vectorize(loops.pop())
        _write_out(s, loops)
    if (extent_of_loop(s, along) or 0) > _JOINING:
        along = s.split(along, None, _TOGETHER)[1]
    _write_out(s, [along])


def _write_out(s: Schedule, loops: Sequence[Loop]) -> None:
    for loop in loops:
        if (extent_of_loop(s, loop) or _JOINING + 1) <= _JOINING:
            s.unroll(loop)


def _by_columns(s: Schedule, name: str, grid: Loop) -> tuple[list[Loop], list[Loop]]:
    """The loops inside the one over blocks of threads: over results in memory order, so that
    columns are innermost, and then the others."""
    block, loops = s.block_of(name), list(s.loops(name))
    inside = loops[loops.index(grid) + 1 :]
    values = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    places = [substitute(index, values) for index in stores_of(block)[0].indices]

    def place(loop: Loop) -> int:
        return max((k for k, e in enumerate(places) if loop.var in free_vars(e)), default=-1)

    spatial = sorted((x for x in inside if feeds_only(block, x, "spatial")), key=place)
    others = [x for x in inside if x not in spatial]
    if len(inside) > 1:
        s.reorder(*spatial, *others)
    return spatial, others


COLUMN_SUMS = Rule("columns", _match, _plan, _schedule)
FEW_ROWS = Rule("few_rows", _match_rows, _plan, _schedule)
