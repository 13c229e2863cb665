"""Independent instances: vectors along the innermost dimension, threads over the rest."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Block, Const, Expr, Var, const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import Access, accesses_of, operations, stores_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Operations of all vectors that are computed side by side, at most.
_SIDE_BY_SIDE = 64
#: Simple operations that are worth waking another thread for (some microseconds' worth).
PARALLEL_WORTH = 50_000


def schedule_elementwise(s: Schedule, name: str, target: Target) -> None:
    """Vectorize and parallelize a block of independent instances."""
    block = s.block_of(name)
    loops = s.loops(name)
    if not loops:
        return
    if is_uniform(block) and len(loops) > 1:
        loops = (s.fuse(*loops),)
    vectorize_innermost(s, name, target)
    parallelize_outer(s, name, target, work=instances(block) * max(1, operations(block)))


def is_uniform(block: Block) -> bool:
    """Whether every access is to the same compact shape at the block's own variables in order."""
    variables = [it.var for it in block.iters]
    shape = [it.extent for it in block.iters]
    return all(_walks(a, variables, shape) for a in accesses_of(block)) and bool(variables)


def _walks(access: Access, variables: list[Var], shape: list[Expr]) -> bool:
    if len(access.indices) != len(variables) or not access.buffer.is_compact:
        return False
    if any(d is not e for d, e in zip(access.buffer.shape, shape, strict=True)):
        return False
    pairs = zip(access.indices, variables, shape, strict=True)
    return all(index is var or extent is const(1) for index, var, extent in pairs)


def instances(block: Block) -> int:
    """How many instances there are; an unknown extent counts as a large one."""
    count = 1
    for it in block.iters:
        count *= int(it.extent.value) if isinstance(it.extent, Const) else 1024
    return count


def vectorize_innermost(s: Schedule, name: str, target: Target) -> None:
    """Cut the innermost loop into vectors of the widest type, a few of them at a time."""
    inner = s.loops(name)[-1]
    # Bodies with a function wait for themselves: two side by side. Longer ones would spill.
    unroll = max(1, min(4, _SIDE_BY_SIDE // max(1, operations(s.block_of(name)))))
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
    """Run the outermost loops (of those in `within`) on all cores, if there is enough to do."""
    if target.cores < 2 or work < PARALLEL_WORTH:
        return
    outer = [
        loop
        for loop in s.loops(name)
        if s.loop_of(loop).kind == "serial" and (within is None or loop in within)
    ]
    chosen: list[Loop] = []
    count = 1
    for loop in outer:
        extent = s.loop_of(loop).extent
        chosen.append(loop)
        count *= int(extent.value) if isinstance(extent, Const) else target.cores * 8
        if count >= target.cores * 8:
            break
    if not chosen or count < 2:
        return
    s.parallel(s.fuse(*chosen) if len(chosen) > 1 else chosen[0])
