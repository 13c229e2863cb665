"""Few results of long sums whose elements are no neighbours: threads of a block share each sum.

for n: for k: S[n] += X[k, n]
-->
for n0 in blocks:
    for y, x in threads: for k: for n1 in lanes: part[y, n1] += X[k * Y + y, …]       a vector each
    for h, n in threads: for y: few[h, n] += part[y * 16 + h, n]                      then fewer
    for n in threads: for h: S[n] += few[h, n]                       with what follows by element

One launch takes as long as its fullest multiprocessor reads; where that is far longer than all of
them together would, the sums are cut into parts (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tilewright.ir import free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import accesses_of, has_own_loops, stores_of
from tilewright.schedule.rules.gpu.grid import (
    THREADS,
    count_of,
    extent_of_loop,
    feeds_only,
    fused,
    only_reduces,
)
from tilewright.schedule.rules.gpu.results import following, lanes_of_sums, result_loops
from tilewright.schedule.rules.reductions.rows import walks_neighbours
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Gpu, Target

#: Threads of a block, results that it has at most, and elements that each of them sums up at least.
_THREADS: Final = 512
_WIDEST: Final = 32
_LEAST_EACH: Final = 4
#: Parts of a sum are joined by so many threads before one joins theirs.
_JOINING: Final = 16
#: Elements of a sum that a thread reads at a time, and the least length of a sum.
_TOGETHER: Final = 8
_LEAST: Final = 128
#: What memory moves at once, in bytes, and bytes a second that one multiprocessor reads.
_SECTOR: Final = 32
_OWN_BANDWIDTH: Final = 40e9


class ColumnSums(NamedTuple):
    """How many results there are and how many elements each of them has; neighbours that a thread
    reads at once, and the bytes of one."""

    results: int
    length: int
    lanes: int
    size: int


class Columns(NamedTuple):
    """Results of a block and of a thread, and the threads that share a sum."""

    width: int
    lanes: int
    sharing: int


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
    found = ColumnSums(results, length, lanes_of_sums(s, name), max(sizes))
    gpu = target.gpu
    assert gpu is not None
    are_few = results < gpu.multiprocessors * THREADS
    is_short = are_few and _time(found, _widths(found, gpu)[0], gpu) < _apart(found, gpu)
    return found if is_short else None


def _widths(found: ColumnSums, gpu: Gpu) -> list[int]:
    """Results that a block can have, the best first."""
    units = found.results // found.lanes
    fitting = [n for n in range(1, _WIDEST // found.lanes + 1) if units % n == 0]
    return sorted((found.lanes * n for n in fitting), key=lambda w: (_time(found, w, gpu), -w))


def _time(found: ColumnSums, width: int, gpu: Gpu) -> float:
    """Seconds that the fullest multiprocessor takes to read its part."""
    each = -(-found.results // width // gpu.multiprocessors)
    moved = found.length * max(_SECTOR, width * found.size) * max(1, each)
    return moved / _OWN_BANDWIDTH


def _apart(found: ColumnSums, gpu: Gpu) -> float:
    """Seconds that two launches take."""
    read = found.results * found.length * found.size
    return read / gpu.bandwidth + gpu.launch_time * 1e-9


def _plan(found: ColumnSums, target: Target, choices: Choices) -> Columns:
    assert target.gpu is not None
    width = choices.choose("width", _widths(found, target.gpu)[:4])
    most = max(1, min(_THREADS * found.lanes // width, found.length // _LEAST_EACH))
    even = [n for n in range(1, most + 1) if found.length % n == 0 and n % _JOINING == 0]
    return Columns(width, found.lanes, even[-1] if even else most)


def _schedule(s: Schedule, name: str, plan: Columns, _target: Target) -> None:
    last = following(s, name) or s.cache_write(name, 0, "local").name
    block = s.block_of(name)
    along = fused(s, [x for x in s.loops(name) if not feeds_only(block, x, "spatial")])
    _, own = s.split(along, None, plan.sharing)
    parts = s.rfactor(own, 0).name
    home = s.cache_write(parts, 0, "local").name
    made = [home]
    if plan.sharing > _JOINING:
        part = next(x for x in s.loops(name) if not feeds_only(s.block_of(name), x, "spatial"))
        made.append(s.rfactor(s.split(part, None, _JOINING)[1], 0).name)
    grid, thread = s.split(fused(s, result_loops(s, last)), None, plan.width)
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


def _by_vectors(s: Schedule, parts: str, home: str, grid: Loop, lanes: int) -> None:
    """Parts of sums in registers, several neighbours by each thread, and put down by it."""
    (*rest, column), _ = _by_columns(s, home, grid)
    if lanes > 1:
        column, vector = s.split(column, None, lanes)
        s.vectorize(vector)
    thread = fused(s, [*rest, column])
    s.bind(thread, "threadIdx.x")
    own = list(s.compute_at(parts, thread))
    block = s.block_of(parts)
    neighbours = [x for x in own if feeds_only(block, x, "spatial")]
    (along,) = [x for x in own if x not in neighbours]
    if lanes > 1:
        s.reorder(along, *neighbours)
        s.vectorize(neighbours[-1])
    if (extent_of_loop(s, along) or 0) > _JOINING:
        along = s.split(along, None, _TOGETHER)[1]
    _write_out(s, [along])


def _write_out(s: Schedule, loops: Sequence[Loop]) -> None:
    for loop in loops:
        if (extent_of_loop(s, loop) or _JOINING + 1) <= _JOINING:
            s.unroll(loop)


def _by_columns(s: Schedule, name: str, grid: Loop) -> tuple[list[Loop], list[Loop]]:
    """The loops inside of the one over blocks of threads: over results, columns innermost, and then
    the others."""
    block, loops = s.block_of(name), list(s.loops(name))
    inside = loops[loops.index(grid) + 1 :]
    spatial = [x for x in inside if feeds_only(block, x, "spatial")]
    spatial.sort(key=lambda x: any({x.var, grid.var} <= free_vars(b) for b in block.bindings))
    others = [x for x in inside if x not in spatial]
    if len(inside) > 1:
        s.reorder(*spatial, *others)
    return spatial, others


COLUMN_SUMS = Rule("columns", _match, _plan, _schedule)
