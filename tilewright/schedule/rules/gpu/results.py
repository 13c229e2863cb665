"""A thread for each result, whatever the block computes: for blocks that other rules do not fit.

for i: for j: for k: C[i, j] += …      -->      for b in blocks: for t in threads:
                                                    for k: acc += …
                                                    C[…] = acc

Adjacent threads have adjacent results. A sum is kept in a register; its elementwise epilogue (a
bias, an activation) is computed by the same thread. Where adjacent sums read contiguous elements
(windows of images with channels innermost), each thread computes a vector of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final, NamedTuple

from tilewright.ir import Block, Const, For, Var, const, free_vars, is_const, substitute
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    accesses_of,
    extent_of,
    has_own_loops,
    is_injective,
    is_intermediate,
    is_scheduled,
    stores_of,
)
from tilewright.schedule.rules.gpu.grid import (
    WIDE,
    count_of,
    extent_of_loop,
    feeds_only,
    feeds_some,
    fused,
    launch,
    only_reduces,
    threads_for,
)
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The longest window that is unrolled.
_SHORT: Final = 32
#: Iterations of longer ones that are unrolled, and the fewest of a loop without inner loops.
_TOGETHER: Final = 16
_LEAST_TOGETHER: Final = 4
#: The most vectors and results of a thread.
_MOST_VECTORS: Final = 7
_MOST_RESULTS: Final = 16
#: Threads that each multiprocessor should have before a thread gets several results.
_ENOUGH: Final = 768


class Run(NamedTuple):
    """Results of a thread: a vector of contiguous ones, and a number of these along the next outer
    dimension, whose windows overlap."""

    lanes: int = 1
    vectors: int = 1

    @property
    def results(self) -> int:
        return self.lanes * self.vectors


class Results(NamedTuple):
    """Loops over independent results, their number, and the results per thread, the best first."""

    loops: list[Loop]
    number: int | None
    runs: Sequence[Run] = (Run(),)


class Grid(NamedTuple):
    """The loops over results, the threads of a block, and the results of a thread."""

    loops: list[Loop]
    threads: int
    run: Run = Run()


def _match(s: Schedule, name: str, _target: Target) -> Results | None:
    chosen = result_loops(s, name)
    return Results(chosen, count_of(s, chosen)) if chosen else None


def _match_sum(s: Schedule, name: str, target: Target) -> Results | None:
    block = s.block_of(name)
    is_one_sum = only_reduces(block) and len(stores_of(block)) == 1
    found = _match(s, name, target) if is_one_sum else None
    return found and found._replace(runs=_runs(s, name))


def _runs(s: Schedule, name: str) -> list[Run]:
    lanes, block = lanes_of_sums(s, name), s.block_of(name)
    counts = [lanes >> k for k in range(lanes.bit_length())]
    out = stores_of(block)[0].buffer
    extent = out.shape[-2] if len(out.shape) > 1 and _overlap(block) else const(1)
    most = int(extent.value) if isinstance(extent, Const) else 1
    vectors = [n for n in range(min(most, _MOST_VECTORS), 0, -1) if most % n == 0]
    found = [Run(n, v) for n in counts for v in vectors if n > 1 or v == 1]
    fitting = (r for r in found if r.results <= _MOST_RESULTS)
    return sorted(fitting, key=lambda r: (r.vectors, r.lanes), reverse=True)


def _overlap(block: Block) -> bool:
    """Whether windows adjacent along the second-to-last dimension share elements."""
    own = stores_of(block)[0].indices[-2]
    reduced = {it.var for it in block.iters if it.kind == "reduce"}
    indices = [index for a in accesses_of(block) for index in a.indices]
    return any(own in free_vars(index) and reduced & free_vars(index) for index in indices)


def lanes_of_sums(s: Schedule, name: str) -> int:
    """How many adjacent sums one access can take, for all that they and the epilogue read."""
    home = following(s, name)
    out = stores_of(s.block_of(name))[0].buffer
    if not out.shape:
        return 1
    read = [a.buffer for a in accesses_of(s.block_of(name)) if a.buffer is not out]
    extent, widest = out.shape[-1], max((b.dtype.itemsize for b in read), default=WIDE)
    lanes = gcd(WIDE // widest, int(extent.value)) if isinstance(extent, Const) else 1
    are_vectors = all(_has_vectors(s.block_of(n), lanes) for n in (name, home) if n is not None)
    return lanes if are_vectors else 1


def _has_vectors(block: Block, lanes: int) -> bool:
    """Whether adjacent results read the same elements, or vectors aligned to `lanes`."""
    (store,) = stores_of(block)
    own = store.indices[-1]
    others = [it.var for it in block.iters if it.var is not own and extent_of(it) != 1]
    read = [a for a in accesses_of(block) if a.buffer is not store.buffer]
    return isinstance(own, Var) and all(
        a.step(own) == 0 or (a.step(own) == 1 and all(a.moves_by(v, lanes) for v in others))
        for a in read
    )


def _match_one(s: Schedule, name: str, _target: Target) -> Results | None:
    """The outermost loop that can be launched by itself, where all together cannot."""
    block = s.block_of(name)
    for loop in s.loops(name):
        if feeds_only(block, loop, "spatial") and s.can("bind", loop, "blockIdx.x"):
            return Results([loop], count_of(s, [loop]))
        if not isinstance(s.loop_of(loop).body, For):
            break
    return None


def result_loops(s: Schedule, name: str) -> list[Loop]:
    """The outermost loops over results, inside those that run in order (which stay on the host)."""
    block, loops = s.block_of(name), list(s.loops(name))
    while loops and feeds_some(block, loops[0], "ordered"):
        loops.pop(0)
    chosen: list[Loop] = []
    for loop in loops:
        if not feeds_only(block, loop, "spatial"):
            break
        if chosen and s.loop_of(chosen[-1]).body is not s.loop_of(loop):
            break
        chosen.append(loop)
    return chosen


def _plan(found: Results, target: Target, choices: Choices) -> Grid:
    assert target.gpu is not None
    enough = _ENOUGH * target.gpu.multiprocessors
    fitting = (r for r in found.runs if (found.number or 0) >= enough * r.results)
    first = next(fitting, Run())
    run = choices.choose("run", [first, *(r for r in found.runs if r != first)])
    own = threads_for(None if found.number is None else found.number // run.results)
    others = [n for n in (64, 128, 256, 512) if n != own]
    return Grid(found.loops, choices.choose("threads", [own, *others]), run)


def _schedule(s: Schedule, _name: str, plan: Grid, _target: Target) -> None:
    launch(s, fused(s, plan.loops), plan.threads)


def schedule_sum(s: Schedule, name: str, plan: Grid, _target: Target) -> None:
    """Sum in a register, in the thread that computes the epilogue."""
    out = stores_of(s.block_of(name))[0].buffer
    home = following(s, name)
    if home is None:
        home = s.cache_write(name, 0, "local").name
    else:
        s.set_scope(name, out, "local")
    loops = _in_order_of_memory(s, home)
    own: list[Loop] = []
    for place, size in ((-1, plan.run.lanes), (-2, plan.run.vectors)):
        if size > 1:
            loops[place], inner = s.split(loops[place], None, size)
            own.insert(0, inner)
    if own:
        s.reorder(*loops, *own)
    _, thread = launch(s, fused(s, loops), plan.threads)
    rest = list(s.compute_at(name, thread))
    _finish_run(s, own)
    inside = [loop for loop in rest if feeds_only(s.block_of(name), loop, "spatial")]
    rest = [loop for loop in rest if loop not in inside]
    if own:
        s.reorder(*rest, *inside)
        _finish_run(s, inside)
    write_out(s, rest)


def _finish_run(s: Schedule, loops: list[Loop]) -> None:
    """Vectorize and unroll the loops over a thread's results."""
    if loops:
        s.vectorize(loops[-1])
    for loop in loops[:-1]:
        s.unroll(loop)


def _in_order_of_memory(s: Schedule, name: str) -> list[Loop]:
    """The loops over results, reordered so that adjacent iterations write adjacent elements."""
    loops, block = result_loops(s, name), s.block_of(name)
    (store,) = stores_of(block)
    values = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    places = [substitute(index, values) for index in store.indices]

    def place(loop: Loop) -> int:
        return max((k for k, e in enumerate(places) if loop.var in free_vars(e)), default=-1)

    ordered = sorted(loops, key=place)
    if ordered != loops:
        s.reorder(*ordered)
    return ordered


SUMS = Rule("sums", _match_sum, _plan, schedule_sum)
RESULTS = Rule("results", _match, _plan, _schedule)
OUTERMOST = Rule("outermost", _match_one, _plan, _schedule)


def following(s: Schedule, name: str) -> str | None:
    """The epilogue of a reduction: the block that reads each result once, if there is one."""
    block = s.block_of(name)
    consumers = [c.name for c in s.consumers(name)]
    if len(consumers) != 1 or not is_intermediate(s, stores_of(block)[0].buffer):
        return None
    after = s.block_of(consumers[0])
    if not is_injective(after) or is_scheduled(s, after.name) or not has_own_loops(s, after.name):
        return None
    domains = [
        [it.extent for it in b.iters if it.kind == "spatial" and not is_const(it.extent, 1)]
        for b in (block, after)
    ]
    return after.name if domains[0] == domains[1] else None


def write_out(s: Schedule, loops: Sequence[Loop]) -> None:
    """Unroll the innermost loops while they are short; of a long one several iterations, so that
    their loads overlap."""
    together = 1
    for loop in reversed(loops):
        extent = extent_of_loop(s, loop) or _SHORT + 1
        if s.loop_of(loop).kind != "serial":
            return
        if together * extent > _SHORT:
            least = _LEAST_TOGETHER if together == 1 else _TOGETHER
            parts = [n for n in range(_TOGETHER, least - 1, -1) if extent % n == 0]
            if together < _TOGETHER and parts:
                s.unroll(s.split(loop, None, parts[0])[1])
            return
        together *= extent
        s.unroll(loop)
