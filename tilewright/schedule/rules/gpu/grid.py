"""Loops bound to blocks and threads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tilewright.ir import Block, Const, free_vars
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.schedule import Schedule

#: Bytes that a thread reads or writes at once.
WIDE: Final = 16
#: Threads of a block, unless there is a reason for another number.
THREADS: Final = 256


def extent_of_loop(s: Schedule, loop: Loop) -> int | None:
    """The number of iterations of a loop, if known."""
    extent = s.loop_of(loop).extent
    return int(extent.value) if isinstance(extent, Const) else None


def count_of(s: Schedule, loops: Sequence[Loop]) -> int | None:
    """The number of iterations of a nest of loops, if known."""
    extents = [extent_of_loop(s, loop) for loop in loops]
    known = [e for e in extents if e is not None]
    return prod(known) if len(known) == len(extents) else None


def round_up_to_power(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def threads_for(count: int | None, most: int = THREADS) -> int:
    """Threads of a block for `count` iterations."""
    return most if count is None else min(most, round_up_to_power(max(1, count)))


def launch(s: Schedule, loop: Loop, threads: int) -> tuple[Loop, Loop]:
    """Launch the iterations of a loop; gives the loops over blocks and threads."""
    block, thread = s.split(loop, None, threads)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    return block, thread


def fused(s: Schedule, loops: Sequence[Loop]) -> Loop:
    """Fuse several loops into one; refused if there are none."""
    if not loops:
        raise RefusedError("no loop runs over results alone")
    return s.fuse(*loops) if len(loops) > 1 else loops[0]


def feeds_only(block: Block, loop: Loop, *kinds: str) -> bool:
    """Whether all variables of a block that a loop determines are of these kinds."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return all(it.kind in kinds for it, b in pairs if loop.var in free_vars(b))


def feeds_some(block: Block, loop: Loop, kind: str) -> bool:
    """Whether a loop determines a variable of a kind."""
    return not feeds_only(block, loop, *{"spatial", "reduce", "ordered"} - {kind})


def only_reduces(block: Block) -> bool:
    """Whether a block is a reduction whose results are independent of each other."""
    return is_reduction(block) and all(it.kind != "ordered" for it in block.iters)
