"""Steps of a scan (recurrent networks): one launch each, by tiles of the hidden state.

    for step:
        for tile of the hidden state in blocks:
            W = the weights of the tile                                       in shared memory
            for all gates of the tile, and parts of their sums in threads:
                parts = state × W
            gates = the sums of the parts
            for the tile in threads: cell, state = …

All that a step computes of a tile is in one block, so that blocks synchronize once per step. There
is a tile for each multiprocessor: `lower.gpu.merge_launches` makes one launch of all steps, and
copies the weights once. Small networks have one tile, and no block waits for another. With many
rows, a thread computes all gates of several rows, and uses each loaded weight for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tilewright.ir import Block, Iter, Var
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.products import is_step
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Contraction,
    as_contraction,
    extent_of,
    has_own_loops,
    is_injective,
    is_intermediate,
    is_stepwise,
    loops_within,
    stores_of,
)
from tilewright.schedule.rules.gpu.grid import extent_of_loop, feeds_only, fused
from tilewright.schedule.rules.gpu.results import write_out
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Threads of a block.
_THREADS: Final = 256
#: The most products of a step for which one block is faster than many that synchronize.
_FEW: Final = 1 << 15
#: The most bytes of a result.
_RESULT: Final = 8
#: The fewest iterations of a part of a sum.
_LEAST: Final = 8
#: Rows per thread, from how many rows on, and the terms that a thread then reads at once.
_ROWS: Final = (4, 2)
_MANY_ROWS: Final = 8
_TERMS: Final = 4
#: How many times larger tiles may be than with one for each multiprocessor.
_TOO_LARGE: Final = 4


class Sizes(NamedTuple):
    """Directions, rows, gates and elements of the hidden state; and the terms of each sum."""

    directions: int
    rows: int
    gates: int
    hidden: int
    terms: int


class Step(NamedTuple):
    """The product of a step, the block that makes its weights, and the blocks after it."""

    sizes: Sizes
    weights: str | None
    #: Bytes per weight.
    width: int
    following: list[str]


class Tiles(NamedTuple):
    """Elements of the hidden state in a tile, parts of each sum, rows of a thread."""

    step: Step
    tile: int
    rows: int
    parts: int
    threads: int
    #: Whether weights, and results of a tile, are in shared memory.
    is_shared: bool
    keeps_results: bool


def _match(s: Schedule, name: str, _target: Target) -> Step | None:
    block = s.block_of(name)
    c = as_contraction(block) if is_step(block) and has_own_loops(s, name) else None
    if c is None or len(c.reduced) != 1 or _step_loop(s, name) is None:
        return None
    spatial, terms = [it for it in block.iters if it.kind == "spatial"], extent_of(c.reduced[0])
    extents = [extent_of(it) for it in spatial]
    if len(spatial) != 4 or terms is None or None in extents or 0 in (terms, *extents):
        return None
    if [it.var for it in spatial] != list(c.out.indices[-4:]):
        return None
    directions, rows, gates, hidden = (int(e or 0) for e in extents)
    if hidden == 1:
        return None
    sizes = Sizes(directions, rows, gates, hidden, terms)
    weights = _weights(s, name, c)
    return Step(sizes, weights, c.b.buffer.dtype.itemsize, _following(s, name, sizes))


def _step_loop(s: Schedule, name: str) -> Loop | None:
    """The loop over steps: the outermost, whose iterations run in order."""
    first = s.loops(name)[0]
    fed = [it.kind for it, loop in _fed(s, name) if loop == first]
    return first if fed == ["ordered"] else None


def _fed(s: Schedule, name: str) -> list[tuple[Iter, Loop]]:
    inside = loops_within(s, name, None)
    return [(it, inside[it.var]) for it in s.block_of(name).iters if it.var in inside]


def _weights(s: Schedule, name: str, c: Contraction) -> str | None:
    """The block that reorders the weights for the product, if nothing else reads it."""
    for ref in s.producers(name):
        block = s.block_of(ref)
        if stores_of(block)[0].buffer is not c.b.buffer or not is_injective(block):
            continue
        is_own = [r.name for r in s.consumers(ref)] == [name] and has_own_loops(s, ref.name)
        return ref.name if is_own and is_intermediate(s, c.b.buffer) else None
    return None


def _following(s: Schedule, name: str, sizes: Sizes) -> list[str]:
    """The elementwise blocks of a step right after the product."""
    around = _step_loop(s, name)
    names = [b.name for b in s.blocks() if around in s.loops(b.name)]
    found: list[str] = []
    for other in names[names.index(name) + 1 :]:
        block = s.block_of(other)
        extents = [extent_of(it) for it in block.iters if it.kind == "spatial"]
        wanted = [sizes.directions, sizes.rows, sizes.hidden]
        if not is_stepwise(block) or extents != wanted or not has_own_loops(s, other):
            break
        found.append(other)
    return found


def _plan(found: Step, target: Target, choices: Choices) -> Tiles:
    sizes, gpu = found.sizes, target.gpu
    assert gpu is not None
    room = gpu.shared // 2
    tile = choices.choose("tile", _tiles(found, gpu.multiprocessors, room))
    fitting = [n for n in _ROWS if sizes.rows % n == 0 and sizes.rows // n * tile <= _THREADS]
    fitting = fitting if sizes.rows >= _MANY_ROWS else []
    rows = choices.choose("rows", [*fitting, 1])
    results = sizes.rows * sizes.gates * tile
    each = rows * sizes.gates if rows > 1 else 1
    threads = choices.choose("threads", (_THREADS, 128, 512))
    own = _parts(sizes.terms, threads * each // results)
    parts = choices.choose("parts", [own, *(n for n in (1, own // 2) if 0 < n != own)])
    fits = found.width * sizes.terms * sizes.gates * tile <= room
    keeps = _RESULT * results * (1 + parts) <= room // 2
    return Tiles(found, tile, rows, parts, threads, fits and found.weights is not None, keeps)


def _tiles(found: Step, multiprocessors: int, room: int) -> list[int]:
    """Candidate lengths of tiles, the best first."""
    sizes = found.sizes
    all_of = sizes.rows * sizes.gates * sizes.hidden * sizes.terms
    bytes_of_all = found.width * sizes.gates * sizes.hidden * sizes.terms
    lengths = [n for n in range(1, sizes.hidden + 1) if sizes.hidden % n == 0]
    fitting = [n for n in lengths if sizes.directions * sizes.hidden // n <= multiprocessors]
    if not fitting:
        return [sizes.hidden]
    if all_of <= _FEW and bytes_of_all <= room:
        return [sizes.hidden, *fitting[:-1]]
    return fitting


def _parts(terms: int, most: int) -> int:
    """Parts of a sum: a power of two that divides its length."""
    parts = 1
    while parts * 2 <= most and terms % (parts * 2) == 0 and terms // (parts * 2) >= _LEAST:
        parts *= 2
    return parts


def _schedule(s: Schedule, name: str, plan: Tiles, target: Target) -> None:
    step, gpu = plan.step, target.gpu
    assert gpu is not None
    enough = -(-step.sizes.hidden * step.sizes.directions // gpu.multiprocessors)
    if plan.tile > _TOO_LARGE * enough and not plan.is_shared:
        raise RefusedError("the hidden state has no tiles for all multiprocessors")
    partial = _factored(s, name, plan)
    summed = partial or name
    home = s.cache_write(summed, 0, "local").name
    joined = [name] if partial else []
    grid, *others = (_tiled(s, x, plan.tile) for x in (summed, home, *joined, *step.following))
    for other in others:
        grid = s.merge(grid, other)
    for maker in (home, *joined) if plan.keeps_results else ():
        _keep_in_block(s, maker, {*joined, *step.following})
    s.bind(grid, "blockIdx.x")
    if plan.rows > 1:
        _rows_in_threads(s, summed, home, grid, plan)
    else:
        _in_threads(s, [summed, home], grid, plan.threads)
    for other in joined:
        _in_threads(s, [other], grid, plan.threads)
    if step.following:
        _in_threads(s, step.following, grid, plan.threads)
    if step.weights is not None:
        _bring(s, step.weights, grid, plan)


STEP_PRODUCTS = Rule("steps", _match, _plan, _schedule)


def _factored(s: Schedule, name: str, plan: Tiles) -> str:
    """Split the sum into interleaved parts; gives the block that sums them, or ""."""
    *_, along = s.loops(name)
    terms = plan.step.sizes.terms
    if plan.rows > 1 and terms % (plan.parts * _TERMS) == 0:
        along, _ = s.split(along, None, _TERMS)
    if plan.parts == 1:
        return ""
    _, part = s.split(along, None, plan.parts)
    return s.rfactor(part, len(stores_of(s.block_of(name))[0].indices) - 2).name


def _tiled(s: Schedule, name: str, tile: int) -> Loop:
    """Cut a block into tiles of the hidden state; gives the loop over tiles of all directions."""
    block, fed = s.block_of(name), loops_within(s, name, s.loops(name)[0])
    # The last loop should write contiguous elements.
    direction, *middle, hidden = _results(block)
    tiles, inner = s.split(fed[hidden], None, tile)
    around = [fed[direction]] if direction in fed else []
    s.reorder(*around, tiles, *(fed[i] for i in middle if i in fed), inner)
    return fused(s, [*around, tiles])


def _results(block: Block) -> list[Var]:
    """The variables that index a step's results, in memory order: direction, row, part of a sum,
    gate, element of the hidden state. Those of extent 1 may have no loop."""
    spatial = {it.var for it in block.iters if it.kind == "spatial"}
    indices = stores_of(block)[0].indices
    return [i for i in indices if isinstance(i, Var) and i in spatial]


def _keep_in_block(s: Schedule, name: str, readers: set[str]) -> None:
    """Use shared memory for what only blocks of the same launch read."""
    buffer = stores_of(s.block_of(name))[0].buffer
    if is_intermediate(s, buffer) and {r.name for r in s.consumers(name)} <= readers:
        s.set_scope(name, buffer, "shared")


class Inside(NamedTuple):
    """The loops of a block in a tile: over results (the first for threads), and of the sum."""

    over: list[Loop]
    along: list[Loop]


def _inside(s: Schedule, name: str, grid: Loop, threads: int) -> Inside:
    loops, block = list(s.loops(name)), s.block_of(name)
    inside = loops[loops.index(grid) + 1 :]
    over = [loop for loop in inside if feeds_only(block, loop, "spatial")]
    along = [loop for loop in inside if loop not in over]
    if along:
        s.reorder(*over, *along)
    every = fused(s, over)
    extent = extent_of_loop(s, every)
    if extent is not None and extent <= threads:
        return Inside([every], along)
    several, every = s.split(every, None, threads)
    s.reorder(every, several)
    return Inside([every, several], along)


def _in_threads(s: Schedule, names: Sequence[str], grid: Loop, threads: int) -> None:
    """Bind the elements of a tile to threads, each of which computes all blocks for its own."""
    first, *others = [_inside(s, name, grid, threads) for name in names]
    for other in others:
        for a, b in zip(first.over, other.over, strict=True):
            s.merge(a, b)
    s.bind(first.over[0], "threadIdx.x")
    # Unrolled iterations overlap their loads.
    write_out(s, first.along or first.over[1:])


def _rows_in_threads(s: Schedule, summed: str, home: str, grid: Loop, plan: Tiles) -> None:
    """Each thread computes all gates of several rows in registers, with the sum's loop outside.

    Adjacent threads have adjacent elements of the hidden state, then other rows.
    """
    spread = [_spread_rows(s, name, grid, plan.rows) for name in (summed, home)]
    (thread, own, along), (other, copied, _) = spread
    s.merge(thread, other)
    s.bind(thread, "threadIdx.x")
    s.reorder(*along, *own)
    first = s.decompose_reduction(summed, along[0])
    loops = list(s.loops(first))
    for loop in (*own, *copied, *loops[loops.index(thread) + 1 :], *along[1:]):
        s.unroll(loop)


def _spread_rows(
    s: Schedule, name: str, grid: Loop, rows: int
) -> tuple[Loop, list[Loop], list[Loop]]:
    """The loop over threads, the loops over one thread's results, and those over terms."""
    fed, loops = loops_within(s, name, grid), list(s.loops(name))
    block, inside = s.block_of(name), loops[loops.index(grid) + 1 :]
    along = [x for x in inside if not feeds_only(block, x, "spatial")]
    _, row, *parts, gate, hidden = _results(block)
    part, gates, units = ([fed[i] for i in of if i in fed] for of in (parts, [gate], [hidden]))
    outer, inner = s.split(fed[row], None, rows)
    s.reorder(*part, outer, *units, inner, *gates, *along)
    return fused(s, [*part, outer, *units]), [inner, *gates], along


def _bring(s: Schedule, weights: str, grid: Loop, plan: Tiles) -> None:
    """Bring weights where threads read them: into shared memory, or in place."""
    if not plan.is_shared:
        s.compute_inline(weights)
        return
    s.compute_at(weights, grid)
    s.set_scope(weights, stores_of(s.block_of(weights))[0].buffer, "shared")
    _in_threads(s, [weights], grid, plan.threads)
