"""Reductions along rows, alone or with the blocks around them (softmax, normalisation): row by row.

for row (parallel):
    every block, for this row only, which stays in L1 from one block to the next
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from tilewright.ir import Block, Const, Load, Var, all_exprs, const, free_vars
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.ahead import read_ahead
from tilewright.schedule.rules.analysis import (
    Access,
    has_own_loops,
    is_injective,
    is_scheduled,
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import (
    instances,
    parallelize_outer,
    vector_lanes,
    vectorize_innermost,
)
from tilewright.schedule.rules.products.contraction_plan import find_tiled
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Loops up to this long are unrolled.
_SHORT = 8
#: Partial results are halved down to this many lanes, which are then added one by one.
_FEW_LANES = 4
#: Parts per core of a reduction to a single element.
_PARTS = 8


class Partial(NamedTuple):
    """How partial results are kept: the number of vectors, and the parts of a total."""

    vectors: int
    parts: int


class SharedRows(NamedTuple):
    """The schedule with all blocks in loops over rows, which were those of the block `last`."""

    schedule: Schedule
    last: str
    rows: list[Loop]
    is_alone: bool
    work: int


class RowReductions(NamedTuple):
    """Reductions along rows, before they are cut, and the result of the default decisions."""

    schedule: Schedule
    names: list[str]
    is_total: bool
    default: SharedRows


def _match(s: Schedule, _block: str, target: Target) -> RowReductions | None:
    """A function without tiled products whose blocks share rows: found out by trying."""
    if any(is_scheduled(s, b.name) or find_tiled(s, b.name) is not None for b in s.blocks()):
        return None
    reductions = [b.name for b in s.blocks() if is_reduction(s.block_of(b))]
    if not reductions or not all(walks_neighbours(s, name) for name in reductions):
        return None
    default = _shared_rows(s, reductions, _partial(target), target)
    is_single = len(s.blocks()) == 1 and is_total(s, reductions[0])
    return None if default is None else RowReductions(s.copy(), reductions, is_single, default)


def _plan(found: RowReductions, target: Target, choices: Choices) -> SharedRows:
    loops = len(found.schedule.loops(found.names[-1])) if found.is_total else 0
    partial = _choose_partial(loops, target, choices)
    if partial == _partial(target):
        return found.default
    rows = _shared_rows(found.schedule, found.names, partial, target)
    if rows is None:
        raise RefusedError(f"blocks do not share rows with {partial.vectors} partial vectors")
    return rows


def _partial(target: Target) -> Partial:
    return Partial(target.timing.partial_vectors, _PARTS * target.cores)


def _choose_partial(loops: int, target: Target, choices: Choices) -> Partial:
    """How partial results are kept; `loops` is the number of loops of a total, else 0."""
    own = _partial(target)
    others = (n for n in (1, 2, 4, 8) if n != own.vectors)
    vectors = choices.choose("partial_vectors", (own.vectors, *others))
    # With several loops, the outermost one gives the parts.
    parts = (own.parts, own.parts // 2, own.parts * 2, target.cores)
    return Partial(vectors, choices.choose("parts", parts if loops == 1 else parts[:1]))


def _shared_rows(
    s: Schedule, reductions: Sequence[str], partial: Partial, target: Target
) -> SharedRows | None:
    """Move all blocks into loops over rows, on a copy of the schedule; None if that fails."""
    work = sum(instances(s.block_of(b)) * operations(s.block_of(b)) for b in s.blocks())
    is_alone = len(s.blocks()) == 1
    s = s.copy()
    last, after = last_and_after(s, [b.name for b in s.blocks()])
    if is_alone and is_total(s, last):
        last = _reduce_parts(s, last, partial.parts)
        reductions = [last]
    for name in reductions:
        keep_partial_vectors(s, name, partial.vectors, target)
    names = [b.name for b in s.blocks()]
    rows = _share_rows(s, last, names[: names.index(last)], after)
    return None if rows is None else SharedRows(s, last, rows, is_alone, work)


def _schedule(s: Schedule, _block: str, plan: SharedRows, target: Target) -> None:
    """Compute row by row."""
    s.restore(plan.schedule)
    _finish_rows(s, [b.name for b in s.blocks()], plan.rows, target)
    _join_passes(s, plan.rows)
    if plan.is_alone:
        _read_rows_ahead(s, s.blocks()[0].name, plan.rows, target)
    parallelize_outer(s, plan.last, target, plan.work, within=plan.rows)


ROWS = Rule("rows", _match, _plan, _schedule)


def is_total(s: Schedule, name: str) -> bool:
    """Whether a block reduces contiguous elements to a single one."""
    block = s.block_of(name)
    is_single = all(it.kind == "reduce" for it in block.iters) and bool(block.iters)
    return is_single and is_reduction(block) and walks_neighbours(s, name)


def _total(s: Schedule, name: str, _target: Target) -> int | None:
    """How many loops a reduction to a single element has."""
    return len(s.loops(name)) if has_own_loops(s, name) and is_total(s, name) else None


def _schedule_total(s: Schedule, name: str, partial: Partial, target: Target) -> None:
    """Reduce everything to one element: parts on all cores, each by partial vectors."""
    work = instances(s.block_of(name)) * operations(s.block_of(name))
    before = {b.name for b in s.blocks()}
    *outer, _ = s.loops(name)
    if len(outer) > 1:
        s.fuse(*outer)
    last = _reduce_parts(s, name, partial.parts)
    _reduce_rows(s, last, before, partial.vectors, work, target)


def _reduce_rows(
    s: Schedule, name: str, before: set[str], vectors: int, work: int, target: Target
) -> None:
    """Reduce rows with vectors of partial results; all blocks not in `before` take part."""
    keep_partial_vectors(s, name, vectors, target)
    own = [b.name for b in s.blocks() if b.name not in before]
    rows = _share_rows(s, name, [n for n in own if n != name], [])
    if rows is None:
        raise RefusedError(f"the parts of {name} cannot be reduced side by side")
    _finish_rows(s, own, rows, target)
    parallelize_outer(s, name, target, work, within=rows)


TOTAL = Rule("total", _total, _choose_partial, _schedule_total)


def _single(s: Schedule, name: str, _target: Target) -> bool | None:
    """Whether a block reduces along rows of contiguous elements."""
    is_whole = has_own_loops(s, name) and is_reduction(s.block_of(name))
    return (is_whole and walks_neighbours(s, name)) or None


def _vectors(_found: bool, target: Target, choices: Choices) -> int:
    return _choose_partial(0, target, choices).vectors


def _schedule_single(s: Schedule, name: str, vectors: int, target: Target) -> None:
    """Reduce rows next to blocks that do not share them, such as products with zero points."""
    work = instances(s.block_of(name)) * operations(s.block_of(name))
    before = {b.name for b in s.blocks()} - {name}
    _reduce_rows(s, name, before, vectors, work, target)


SINGLE_ROWS = Rule("single_rows", _single, _vectors, _schedule_single)


def _finish_rows(s: Schedule, names: list[str], rows: list[Loop], target: Target) -> None:
    """Vectorize what blocks do inside the loops over rows."""
    for name in names:
        inside = [loop for loop in s.loops(name) if loop not in rows]
        if not inside:
            continue
        # Rows that fit the partial results whole leave no reduction.
        if s.block_of(name).init is not None:
            _finish_reduction(s, name, inside, target)
        elif is_injective(s.block_of(name)):
            vectorize_innermost(s, name, target)


def _join_passes(s: Schedule, rows: list[Loop]) -> None:
    """Merge a reduction's loop with that of its producer, where both have the same iterations."""
    for first, second in pairwise([b.name for b in s.blocks()]):
        a, b = ([loop for loop in s.loops(n) if loop not in rows] for n in (first, second))
        reads = any(c.name == second for c in s.consumers(first))
        if a and b and reads and s.block_of(second).init is not None and s.can("merge", a[0], b[0]):
            s.merge(a[0], b[0])


def _read_rows_ahead(s: Schedule, name: str, rows: list[Loop], target: Target) -> None:
    """Prefetch the operands of a reduction from memory, where adding is all the work."""
    block, inside = s.block_of(name), [loop for loop in s.loops(name) if loop not in rows]
    read = [r.buffer for r in block.reads if r.buffer in s.function.buffers]
    sizes = [b.dtype.itemsize * (b.static_size() or 0) for b in read]
    is_far = max(sizes, default=0) > target.caches.l2
    serial = [k for k, loop in enumerate(inside) if s.loop_of(loop).kind == "serial"]
    if not is_far or not serial:
        return
    steps = [s.loop_of(loop).extent for loop in inside[serial[-1] + 1 :]]
    known = [int(step.value) for step in steps if isinstance(step, Const)]
    if known and len(known) == len(steps):
        read_ahead(s, inside[serial[-1]], prod(known) * read[0].dtype.itemsize, target)


def last_and_after(s: Schedule, names: list[str]) -> tuple[str, list[str]]:
    """The block of `names` into whose loops over rows all others move, and the blocks after it.

    That is the last block; if several blocks write results, the last reduction.
    """
    last = max(n for n, name in enumerate(names) if is_reduction(s.block_of(name)))
    after = names[last + 1 :]
    results = [name for name in after if not s.consumers(name)]
    return (names[last], after) if len(results) > 1 else (names[-1], [])


def _reduce_parts(s: Schedule, name: str, count: int) -> str:
    """Reduce parts first: a block whose rows are the parts, and one that adds these up."""
    loops = s.loops(name)
    parts = loops[0]
    if len(loops) == 1:
        parts, _ = s.split(loops[0], count, None)
    return s.rfactor(parts, 0).name


def _share_rows(s: Schedule, last: str, others: list[str], after: list[str]) -> list[Loop] | None:
    """Move the blocks before and after `last` into its loops over rows; None if that fails."""
    block = s.block_of(last)
    spatial = [loop for loop in s.loops(last) if _feeds_space(block, loop)]
    rows = spatial if is_reduction(block) else spatial[:-1]
    rows = rows[: loops_of_results(s, last, others, rows)]
    if not rows:
        return rows if not others and not after else None
    for name in after:
        if not s.can("reverse_compute_at", name, rows[-1]):
            return None
        s.reverse_compute_at(name, rows[-1])
    for name in reversed(others):
        if not s.can("compute_at", name, rows[-1]):
            return None
        s.compute_at(name, rows[-1])
    return rows


def loops_of_results(s: Schedule, last: str, others: list[str], rows: list[Loop]) -> int:
    """How many outer row loops index every result of `others` that `last` reads.

    Inside a further loop, the same results would be computed repeatedly.

    for n: for c: for y: for x: Y[n, c, y, x] = X[n, c, y, x] - mean[n, c]        2: n and c
    """
    made = {w.buffer for name in others for w in s.block_of(name).writes}
    block = s.block_of(last)
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer in made]
    used = [frozenset[Var]().union(*map(free_vars, e.indices)) for e in loads]
    for count, loop in enumerate(rows):
        own = _variables(block, loop)
        if s.loop_of(loop).extent is not const(1) and any(not own & read for read in used):
            return count
    return len(rows)


def _variables(block: Block, loop: Loop) -> frozenset[Var]:
    """The variables of a block that a loop determines."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return frozenset(it.var for it, binding in pairs if loop.var in free_vars(binding))


def keep_partial_vectors(s: Schedule, name: str, vectors: int, target: Target) -> None:
    """Reduce along contiguous elements into vectors of partial results, then across these.

    for k: S += X[k]
    -->
    for k0: for v: P[v] += X[k0 * 16 + v]
    for u: for l: Q[l] += P[u * 4 + l]
    for l: S += Q[l]                                  more than 4 lanes are halved first
    """
    inner = s.loops(name)[-1]
    lanes = vector_lanes(s.block_of(name), target)
    extent = s.loop_of(inner).extent
    if isinstance(extent, Const):
        vectors = min(vectors, int(extent.value) // lanes)
    if lanes < 2 or vectors < 1:
        return
    halves = [lanes >> k for k in range(1, lanes.bit_length()) if lanes >> k >= _FEW_LANES]
    for width in (vectors * lanes, *([lanes] if vectors > 1 else []), *halves):
        _, lane = s.split(s.loops(name)[-1], None, width)
        if not _factor_out(s, name, lane):
            return


def _factor_out(s: Schedule, name: str, loop: Loop) -> bool:
    rank = len(stores_of(s.block_of(name))[0].indices)
    if not s.can("rfactor", loop, rank):
        return False
    s.set_scope(s.rfactor(loop, rank), 0, "local")
    return True


def _finish_reduction(s: Schedule, name: str, loops: list[Loop], target: Target) -> None:
    """Vectorize the innermost loop if it is spatial; unroll short loops."""
    block, inner = s.block_of(name), loops[-1]
    lanes = vector_lanes(block, target)
    extent = s.loop_of(inner).extent
    short = list(loops[:-1])
    if _feeds_space(block, inner) and isinstance(extent, Const):
        if extent.value > lanes:
            middle, inner = s.split(inner, None, lanes)
            s.unroll(middle)
        s.vectorize(inner)
    else:
        short.append(inner)
    for loop in short:
        length = s.loop_of(loop).extent
        if isinstance(length, Const) and length.value <= _SHORT:
            s.unroll(loop)


def _feeds_space(block: Block, loop: Loop) -> bool:
    pairs = zip(block.iters, block.bindings, strict=True)
    return all(it.kind == "spatial" for it, b in pairs if loop.var in free_vars(b))


def walks_neighbours(s: Schedule, name: str) -> bool:
    """Whether the innermost loop reduces along contiguous elements of an operand."""
    block = s.block_of(name)
    last = block.iters[-1]
    if last.kind != "reduce":
        return False
    written = stores_of(block)[0].buffer
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer is not written]
    steps = [Access(e.buffer, e.indices).step(last.var) for e in loads]
    # Windows overlap: rows that they share would be computed once per window.
    plain = all(isinstance(i, Var | Const) for e in loads for i in e.indices)
    return plain and all(step in (0, 1) for step in steps) and 1 in steps
