"""Reductions along rows, alone or with what surrounds them (softmax, norms): a block per row.

for row in blocks:
    for t in threads: for k: part[t] += X[row, k * threads + t]                       each its own
    for h in 16 threads: for g: few[h] += part[g * 16 + h]                            then fewer
    for one thread: for h: S[row] += few[h]
    for t in threads: for j: Y[row, j * threads + t] = f(X[…], S[row])                the whole row

All blocks that share rows are computed in one launch, with intermediate results in shared memory
where they fit. Short rows are computed several at a time, with a warp for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Final, NamedTuple

from tilewright.ir import WARP, free_vars
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.access import inner_vars
from tilewright.schedule.facts.decoding import bindings_determine
from tilewright.schedule.facts.dependence import ranges_below
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    accesses_of,
    as_contraction,
    extent_of,
    has_own_loops,
    is_injective,
    is_intermediate,
    is_scheduled,
    stores_of,
)
from tilewright.schedule.rules.gpu.elementwise import lanes_of
from tilewright.schedule.rules.gpu.grid import (
    WIDE,
    count_of,
    extent_of_loop,
    feeds_only,
    fused,
    only_reduces,
    round_up_to_power,
)
from tilewright.schedule.rules.reductions.rows import (
    last_and_after,
    loops_of_results,
    walks_neighbours,
)
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The fewest elements that a thread reduces, and the most threads of a row.
_LEAST_EACH: Final = 4
_MOST_THREADS: Final = 256
#: With many rows: the fewest threads of one, and the most elements that each then has.
_LEAST_THREADS: Final = 8
_MOST_EACH: Final = 24
#: This many threads join partial results before one thread joins theirs.
_JOINING: Final = 16
#: The longest loop that is unrolled.
_SHORT: Final = 16
#: The most bytes of shared memory for the rows of a block: several blocks should fit.
_SHARED: Final = 40 << 10


class Rows(NamedTuple):
    """The number of rows, of iterations of the innermost loop over them, and of elements of a row,
    where they are known."""

    names: list[str]
    number: int | None
    inner: int | None
    length: int | None


class Sharing(NamedTuple):
    """Threads of a row, and rows of a block."""

    names: list[str]
    threads: int
    rows: int


def _match(s: Schedule, name: str, _target: Target) -> Rows | None:
    """The unscheduled blocks around a reduction, up to those that another rule has scheduled."""
    names = [b.name for b in s.blocks()]
    place = names.index(name)
    taken = [k for k, other in enumerate(names) if is_scheduled(s, other)]
    first = max((k + 1 for k in taken if k < place), default=0)
    end = min((k for k in taken if k > place), default=len(names))
    reductions = [n for n in names[first:end] if is_reduction(s.block_of(n))]
    if end - first == 1 or not reductions or reductions[0] != name:
        return None
    return _found(s, names[first:end])


def _match_one(s: Schedule, name: str, _target: Target) -> Rows | None:
    return _found(s, [name])


def _found(s: Schedule, names: list[str]) -> Rows | None:
    blocks = [s.block_of(name) for name in names]
    reductions = [name for name in names if is_reduction(s.block_of(name))]
    if not reductions or not all(has_own_loops(s, name) for name in names):
        return None
    if not all(is_injective(b) or only_reduces(b) for b in blocks):
        return None
    if not all(walks_neighbours(s, name) and not _is_product(s, name) for name in reductions):
        return None
    first = s.block_of(reductions[0])
    loops = s.loops(reductions[0])
    rows = [loop for loop in loops if feeds_only(first, loop, "spatial")]
    along = [loop for loop in loops if loop not in rows]
    extents = [extent_of_loop(s, loop) for loop in rows]
    inner = next((e for e in reversed(extents) if e != 1), None)
    return Rows(names, count_of(s, rows), inner, count_of(s, along))


def _is_product(s: Schedule, name: str) -> bool:
    """Whether a block is a matrix product, whose operands are read repeatedly."""
    found = as_contraction(s.block_of(name))
    return found is not None and bool(found.rows) and bool(found.columns)


def _plan(found: Rows, target: Target, choices: Choices) -> Sharing:
    own = _threads(found, target)
    others = [n for n in (8, 16, 32, 64, 128, 256, 512) if n != own]
    threads = choices.choose("threads", [own, *others])
    fitting = [1]
    if found.inner is not None and threads < _MOST_THREADS:
        most = min(_MOST_THREADS // threads, found.inner // 2)
        fitting = [n for n in range(max(1, most), 0, -1) if found.inner % n == 0]
    return Sharing(found.names, threads, choices.choose("rows", fitting))


def _threads(found: Rows, target: Target) -> int:
    """Threads of a row: few enough for all rows to run at the same time, if possible."""
    if found.length is None:
        return _MOST_THREADS
    threads = min(_MOST_THREADS, max(WARP, round_up_to_power(-(-found.length // _LEAST_EACH))))
    assert target.gpu is not None
    least = max(_LEAST_THREADS, -(-found.length // _MOST_EACH))
    room = target.gpu.multiprocessors * target.gpu.threads
    while found.number is not None and found.number * threads > room and threads >= 2 * least:
        threads //= 2
    return threads


@dataclass
class _Placed:
    """Blocks that sum partial results in registers, and for each the block that stores them."""

    homes: dict[str, str] = field(default_factory=dict[str, str])
    #: Those of them that sum several adjacent elements side by side.
    vectors: set[str] = field(default_factory=set[str])


def schedule_rows(s: Schedule, _block: str, plan: Sharing, _target: Target) -> None:
    """Compute blocks that share rows in one launch."""
    names = plan.names
    last, after = last_and_after(s, names)
    placed = _Placed()
    order: list[str] = []
    for name in names:
        order += _factored(s, name, plan.threads, placed) if is_reduction(s.block_of(name)) else []
        order.append(name)
    before = order[: order.index(last)]
    grid, row = _row_loops(s, last, before, plan.rows)
    for name in after:
        s.reverse_compute_at(name, grid)
    for name in reversed(before):
        home = placed.homes.get(name)
        s.compute_at(name, grid if home is None else s.loops(home)[-1])
    _require_rows_of_their_own(s, before, grid)
    _choose_memory(s, [*order, *after], grid, placed)
    s.bind(grid, "blockIdx.x")
    for name in dict.fromkeys([*order, *after]):
        if name not in placed.homes:
            _give_to_threads(s, name, grid, row, plan)
    for name in placed.homes:
        loops = [loop for loop in s.loops(name) if s.loop_of(loop).kind == "serial"]
        if name in placed.vectors:
            block = s.block_of(name)
            (vector,) = [loop for loop in loops if feeds_only(block, loop, "spatial")]
            loops.remove(vector)
            s.reorder(*loops, vector)
            s.vectorize(vector)
        _write_out(s, loops)


SHARED_ROWS = Rule("rows", _match, _plan, schedule_rows)
ROW_SUMS = Rule("row_sums", _match_one, _plan, schedule_rows)


def _factored(s: Schedule, name: str, threads: int, placed: _Placed) -> list[str]:
    """Split a reduction; gives the blocks that reduce parts of a row, before the joining one."""
    block, loops = s.block_of(name), s.loops(name)
    along = fused(s, [loop for loop in loops if not feeds_only(block, loop, "spatial")])
    length = extent_of_loop(s, along)
    if length is not None and length <= WARP // 2:
        return []
    rank = len(stores_of(s.block_of(name))[0].indices)
    lanes = _lanes(s, name, along, threads)
    _, thread, *vector = s.split(along, None, threads, *([lanes] if lanes > 1 else []))
    parts = s.rfactor(thread, rank).name
    made = [parts]
    if len(stores_of(s.block_of(parts))) == 1:
        if vector:
            by_lanes = s.rfactor(s.loops(parts)[-1], rank + 1).name
            s.set_scope(by_lanes, 0, "local")
            made.insert(0, by_lanes)
        home = s.cache_write(parts, 0, "local").name
        placed.homes |= dict.fromkeys(made, home)
        placed.vectors |= {*made[:-1]}
        made.append(home)
    if threads > WARP // 2:
        _, few = s.split(s.loops(name)[-1], None, _JOINING if threads > 4 * WARP else _JOINING // 2)
        made.append(s.rfactor(few, rank).name)
    return made


def _lanes(s: Schedule, name: str, along: Loop, threads: int) -> int:
    """Contiguous elements of a row that a thread reads at once."""
    length, block = extent_of_loop(s, along), s.block_of(name)
    last = next(it for it in reversed(block.iters) if it.kind == "reduce")
    read = [a for a in accesses_of(block) if a.step(last.var) != 0]
    if length is None or length % threads or any(a.step(last.var) != 1 for a in read):
        return 1
    widest = max((a.buffer.dtype.itemsize for a in read), default=WIDE)
    return gcd(WIDE // widest, length // threads, extent_of(last) or 1)


def _row_loops(s: Schedule, last: str, before: list[str], rows: int) -> tuple[Loop, Loop | None]:
    """The loop over blocks of the grid, and the one over the rows of a block if it has several.

    A single row gets a loop of one iteration.
    """
    block, loops = s.block_of(last), s.loops(last)
    spatial = [loop for loop in loops if feeds_only(block, loop, "spatial")]
    chosen = spatial[: loops_of_results(s, last, before, spatial)]
    if not loops:
        return s.add_unit_loop(last), None
    if not chosen:
        return s.split(loops[0], 1, None)[0], None
    *outer, inner = chosen
    row = None
    extent = extent_of_loop(s, inner)
    if rows > 1 and extent is not None and extent % rows == 0 and extent > rows:
        inner, row = s.split(inner, None, rows)
    return fused(s, [*outer, inner]), row


def _inside(s: Schedule, name: str, grid: Loop) -> list[Loop]:
    loops = list(s.loops(name))
    return loops[loops.index(grid) + 1 :]


def _require_rows_of_their_own(s: Schedule, names: Sequence[str], grid: Loop) -> None:
    """Refuse where blocks of threads would compute the same results: those of a group of channels,
    say, once per channel."""
    loop = s.loop_of(grid)
    if extent_of_loop(s, grid) == 1:
        return
    ranges, inside = ranges_below(s.tree, loop), inner_vars(loop)
    for name in names:
        if not bindings_determine(s.block_of(name), grid.var, inside, ranges):
            raise RefusedError(f"several blocks of threads would compute {name}")


def _choose_memory(s: Schedule, names: Sequence[str], grid: Loop, placed: _Placed) -> None:
    """Shared memory for intermediate results within a block of threads, as much as fits."""
    left = _SHARED
    for name in dict.fromkeys(names):
        if name in placed.homes:
            continue
        block = s.block_of(name)
        inside = [x for x in _inside(s, name, grid) if feeds_only(block, x, "spatial")]
        extents = [extent_of_loop(s, loop) for loop in inside]
        for store in stores_of(block):
            buffer = store.buffer
            if not is_intermediate(s, buffer) or None in extents:
                continue
            if any(grid not in s.loops(reader) for reader in s.consumers(name)):
                continue
            nbytes = buffer.dtype.itemsize * prod(e for e in extents if e is not None)
            if nbytes <= left:
                left -= nbytes
                s.set_scope(name, buffer, "shared")


def _give_to_threads(s: Schedule, name: str, grid: Loop, row: Loop | None, plan: Sharing) -> None:
    """Bind the loops of one block (its rows, and the loops along them) to threads."""
    block, inside = s.block_of(name), _inside(s, name, grid)
    spatial = [loop for loop in inside if feeds_only(block, loop, "spatial")]
    rows = [loop for loop in spatial if row is not None and _is_row(s, name, loop, grid)][:1]
    along = [loop for loop in spatial if loop not in rows]
    others = [loop for loop in inside if loop not in spatial]
    s.reorder(*rows, *along, *others) if len(inside) > 1 else None
    for loop in rows:
        s.bind(loop, "threadIdx.y")
    if along:
        _spread(s, name, fused(s, along), others, plan.threads)
    elif not rows:
        s.bind(_unit_loop(s, name, others), "threadIdx.x")
    _write_out(s, others)


def _unit_loop(s: Schedule, name: str, others: list[Loop]) -> Loop:
    """A loop of one iteration around the work of a single thread."""
    if not others:
        return s.add_unit_loop(name)
    unit, others[0] = s.split(others[0], 1, None)
    return unit


def _is_row(s: Schedule, name: str, loop: Loop, grid: Loop) -> bool:
    pairs = s.block_of(name).bindings
    return any({loop.var, grid.var} <= free_vars(value) for value in pairs)


def _spread(s: Schedule, name: str, loop: Loop, others: list[Loop], threads: int) -> None:
    """Distribute a loop along a row over all threads, with the widest possible accesses."""
    extent, lanes = extent_of_loop(s, loop), 1
    if extent is not None and extent <= threads:
        s.bind(loop, "threadIdx.x")
        return
    if not others and extent is not None:
        lanes = lanes_of(s.block_of(name))
        lanes = lanes if extent % (lanes * threads) == 0 else 1
    if lanes > 1:
        several, thread, vector = s.split(loop, None, threads, lanes)
        s.vectorize(vector)
    else:
        several, thread = s.split(loop, None, threads)
    s.reorder(thread, several)
    s.bind(thread, "threadIdx.x")
    _write_out(s, [several])


def _write_out(s: Schedule, loops: Sequence[Loop]) -> None:
    for loop in loops:
        extent = extent_of_loop(s, loop)
        if extent is not None and extent <= _SHORT and s.loop_of(loop).kind == "serial":
            s.unroll(loop)
