"""Independent instances: vectors along the innermost dimension, threads over the rest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.arith import conjuncts, linear
from tilewright.ir import (
    Binary,
    Block,
    Const,
    Expr,
    Load,
    Select,
    Var,
    all_exprs,
    const,
    free_vars,
    loads_in,
    map_expr,
)
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    accesses_of,
    is_injective,
    is_stepwise,
    operations,
    stores_of,
)
from tilewright.schedule.rules.rule import Choices, Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Operations of unrolled vectors, per independent chain that registers can hold; longer bodies
#: would spill.
_UNROLLED_OPERATIONS = 25
#: The most vectors that are unrolled.
_UNROLLED_VECTORS = 4
#: The most seams at which a row is cut.
_MOST_SEAMS = 4
#: How far beyond the bound a comparison's result changes.
_AFTER = {"lt": 0, "ge": 0, "le": 1, "gt": 1}
#: The value assumed for unknown extents inside a parallel loop.
_UNKNOWN = 32


def _independent(s: Schedule, name: str, _target: Target) -> bool | None:
    return is_injective(s.block_of(name)) or None


def _stepwise(s: Schedule, name: str, _target: Target) -> bool | None:
    return is_stepwise(s.block_of(name)) or None


def _schedule(s: Schedule, name: str, as_one: bool, target: Target) -> None:
    """Vectorize and parallelize a block of independent instances.

    `as_one` fuses all loops where every access allows it.
    """
    block = s.block_of(name)
    if _copies_rows(block, target):
        _walk_source(s, name, block)
    loops = s.loops(name)
    if not loops:
        return
    inner = loops[-1]
    # A fused loop would cross seams again and again.
    plain = bool(block.bindings) and block.bindings[-1] is inner.var
    seams = seams_of(block, target) if plain else []
    if as_one and is_uniform(block) and len(loops) > 1 and not seams:
        inner = s.fuse(*loops)
    elif not seams and has_thin_pixels(s, name, target):
        inner = s.fuse(*loops[-2:])
    parts = s.loop_partition(inner, *seams) if seams else [inner]
    made = [b.name for b in s.blocks() if s.loops(b) and s.loops(b)[-1] in parts]
    for part in made:
        vectorize_innermost(s, part, target)
    for part in made if len(loops) == 1 else [name]:
        parallelize_outer(s, part, target, work=instances(block) * max(1, operations(block)))


def _schedule_steps(s: Schedule, name: str, _plan: bool, target: Target) -> None:
    vectorize_innermost(s, name, target)


def _row_by_row(_found: bool, _target: Target, _choices: Choices) -> bool:
    return False


def _all_loops_as_one(_found: bool, _target: Target, choices: Choices) -> bool:
    return choices.choose("as_one", (True, False))


ELEMENTWISE = Rule("elementwise", _independent, _all_loops_as_one, _schedule)
#: For loops that cannot be partitioned provably once fused, as with sizes known only at run time.
ELEMENTWISE_BY_ROWS = Rule("elementwise_by_rows", _independent, _row_by_row, _schedule)
#: In a scan, only the dimensions of a single step are independent.
STEPWISE = Rule("stepwise", _stepwise, as_found, _schedule_steps)


def has_thin_pixels(s: Schedule, name: str, target: Target) -> bool:
    """Whether the last dimension has few elements, too few for a vector (the channels of a
    picture), and all accesses are contiguous over the last two dimensions, except those to
    tables."""
    block, loops = s.block_of(name), s.loops(name)
    if len(loops) < 2 or [loop.var for loop in loops[-2:]] != list(block.bindings[-2:]):
        return False
    pixel, channel = block.iters[-2:]
    count = int(channel.extent.value) if isinstance(channel.extent, Const) else 0
    is_odd = count & (count - 1) != 0 and count < vector_lanes(block, target)
    variables = [it.var for it in block.iters]
    tensors = [a for a in accesses_of(block) if a.indices and not _is_told(a, variables)]
    steps = {(a.step(pixel.var), a.step(channel.var)) for a in tensors}
    return is_odd and steps == {(count, 1)}


def _copies_rows(block: Block, target: Target) -> bool:
    """Whether a block copies a large source, in rows of a cache line or more."""
    stores = stores_of(block)
    if len(stores) != 1 or not isinstance(stores[0].value, Load) or not block.iters:
        return False
    row, size = block.iters[-1].extent, stores[0].buffer.dtype.itemsize
    is_far = 2 * instances(block) * size > target.caches.l2
    return is_far and isinstance(row, Const) and int(row.value) * size >= target.caches.line


def _walk_source(s: Schedule, name: str, block: Block) -> None:
    """Copy in the order of the source, which is then read sequentially; lines are written whole.

    for h: for t: for d: Y[h, t, d] = X[t, h, d]
    -->
    for t: for h: for d: Y[h, t, d] = X[t, h, d]
    """
    load, loops = stores_of(block)[0].value, s.loops(name)
    if not isinstance(load, Load) or len(loops) != len(block.iters):
        return
    source = Access(load.buffer, load.indices)
    steps = [source.step(it.var) for it in block.iters]
    known = [step for step in steps if step]
    if len(known) == len(steps) and min(known) == known[-1] == 1:
        order = sorted(range(len(loops)), key=lambda k: -known[k])
        s.reorder(*(loops[k] for k in order))


def seams_of(block: Block, target: Target) -> list[int]:
    """Where along the innermost dimension a select switches to another source.

    Y[i, j] = A[i, j] if j < 5 else B[i, j - 5]         [5]

    Vectors across a seam would select lane by lane. Empty where all seams fall between vectors,
    or where there are too many.
    """
    it, lanes = block.iters[-1], vector_lanes(block, target)
    chosen = [e.condition for e in all_exprs(block.body) if isinstance(e, Select)]
    inside = seams_along(it.var, it.extent, chosen)
    if len(inside) > _MOST_SEAMS or all(p % lanes == 0 for p in inside):
        return []
    return inside


def seams_along(var: Var, extent: Expr, conditions: Sequence[Expr]) -> list[int]:
    """Where within an extent one of the conditions becomes true or false."""
    found = {_seam(c, var) for condition in conditions for c in conjuncts(condition)}
    end = int(extent.value) if isinstance(extent, Const) else 0
    return sorted(p for p in found if p is not None and 0 < p < end)


def _seam(condition: Expr, var: Var) -> int | None:
    """The first value of `var` at which a comparison with a constant changes its result."""
    if not isinstance(condition, Binary) or condition.op not in _AFTER:
        return None
    if not condition.a.dtype.is_integer:
        return None
    distance = linear(condition.a - condition.b)
    step = distance.terms.get(var)
    if set(distance.terms) != {var} or step not in (1, -1):
        return None
    # step * (var - zero) is compared with 0; `<` and `>=` change at 0, the others one later.
    zero = -distance.constant * step
    return zero + (_AFTER[condition.op] if step == 1 else 1 - _AFTER[condition.op])


def is_uniform(block: Block) -> bool:
    """Whether every access is to a scalar, to the same compact shape at the block's own variables
    in order, or, where all sizes are known, to a table at indices that were loaded.

    For others, vectors over a fused loop would not be recognised as contiguous.
    """
    variables = [it.var for it in block.iters]
    shape = [it.extent for it in block.iters]
    tensors = [a for a in accesses_of(block) if a.indices]
    if all(isinstance(extent, Const) for extent in shape):
        tensors = [a for a in tensors if not _is_told(a, variables)]
    return all(_walks(a, variables, shape) for a in tensors) and bool(variables)


def _is_told(access: Access, variables: list[Var]) -> bool:
    """Whether an access is indexed by loaded elements and by nothing else."""
    memo: dict[Expr, Expr] = {}
    without = [
        map_expr(i, lambda e: const(0, e.dtype) if isinstance(e, Load) else None, memo)
        for i in access.indices
    ]
    return any(map(loads_in, access.indices)) and not any(
        free_vars(i) & set(variables) for i in without
    )


def _walks(access: Access, variables: list[Var], shape: list[Expr]) -> bool:
    if len(access.indices) != len(variables) or not access.buffer.is_compact:
        return False
    if any(d is not e for d, e in zip(access.buffer.shape, shape, strict=True)):
        return False
    pairs = zip(access.indices, variables, shape, strict=True)
    return all(index is var or extent is const(1) for index, var, extent in pairs)


def instances(block: Block) -> int:
    """The number of instances; unknown extents count as 1024."""
    count = 1
    for it in block.iters:
        count *= int(it.extent.value) if isinstance(it.extent, Const) else 1024
    return count


def vectorize_innermost(s: Schedule, name: str, target: Target) -> None:
    """Vectorize the innermost loop with the lanes of the widest type, and unroll a few vectors."""
    inner = s.loops(name)[-1]
    # Unrolling hides the latency of functions; long bodies would spill.
    most = _UNROLLED_OPERATIONS * target.chains // max(1, operations(s.block_of(name)))
    unroll = max(1, min(_UNROLLED_VECTORS, most))
    lanes = vector_lanes(s.block_of(name), target)
    extent = s.loop_of(inner).extent
    if lanes < 2 or (isinstance(extent, Const) and extent.value < 2):
        return
    if isinstance(extent, Const):
        lanes = min(lanes, 1 << (int(extent.value).bit_length() - 1))
        unroll = min(unroll, max(1, int(extent.value) // lanes))
    if extent is const(lanes):
        s.vectorize(inner)
        return
    if unroll > 1:
        _, middle, vector = s.split(inner, None, unroll, lanes)
        s.unroll(middle)
    else:
        _, vector = s.split(inner, None, lanes)
    s.vectorize(vector)


def vector_lanes(block: Block, target: Target) -> int:
    """Lanes of the vectors for a block: those of the widest type that it stores."""
    return min(target.lanes(s.buffer.dtype) for s in stores_of(block))


def parallelize_outer(
    s: Schedule, name: str, target: Target, work: int, within: Sequence[Loop] | None = None
) -> None:
    """Run the outermost loops (among `within`) on all cores, if there is enough work."""
    if target.cores < 2 or work < target.timing.fork_operations:
        return
    serial = [loop for loop in s.loops(name) if s.loop_of(loop).kind == "serial"]
    outer = [loop for loop in serial if within is None or loop in within]
    chosen = outermost(s, outer, target.cores * 8)
    extents = [s.loop_of(loop).extent for loop in chosen]
    if all(e is const(1) for e in extents):
        return
    is_symbolic = not all(isinstance(e, Const) for e in extents)
    if is_symbolic:
        chosen = _worth_dividing(s, name, chosen, target)
    s.parallel(s.fuse(*chosen) if len(chosen) > 1 else chosen[0])


def _worth_dividing(s: Schedule, name: str, chosen: list[Loop], target: Target) -> list[Loop]:
    """The first of `chosen`, as many as pay: each iteration of the fused loop must outweigh the
    divisions by run-time extents that recover their variables."""
    loops = s.loops(name)
    inside = prod(_length(s, loop) for loop in loops[loops.index(chosen[-1]) + 1 :])
    while len(chosen) > 1 and inside < target.timing.division_instances:
        *chosen, last = chosen
        inside *= _length(s, last)
    return chosen


def _length(s: Schedule, loop: Loop) -> int:
    extent = s.loop_of(loop).extent
    return int(extent.value) if isinstance(extent, Const) else _UNKNOWN


def outermost(s: Schedule, loops: Sequence[Loop], enough: int, least: int = 0) -> list[Loop]:
    """The first of `loops`, at least `least`, that have `enough` iterations together.

    A size that is known only at run time counts as 1.
    """
    chosen: list[Loop] = []
    count = 1
    for loop in loops:
        extent = s.loop_of(loop).extent
        chosen.append(loop)
        count *= int(extent.value) if isinstance(extent, Const) else 1
        if count >= enough and len(chosen) >= least:
            break
    return chosen
