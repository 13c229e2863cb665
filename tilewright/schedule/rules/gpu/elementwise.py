"""Independent elements: adjacent threads compute adjacent elements, 16 bytes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from tilewright.ir import Block
from tilewright.schedule.rules.analysis import (
    Access,
    accesses_of,
    extent_of,
    has_own_loops,
    is_injective,
    stores_of,
)
from tilewright.schedule.rules.elementwise import is_uniform
from tilewright.schedule.rules.gpu.grid import WIDE, count_of, fused, launch, threads_for
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: From this many vectors, each thread takes several: there are enough threads anyway.
_MANY: Final = 1 << 20
_SEVERAL: Final = 4


class Elements(NamedTuple):
    """How many contiguous elements of a block make a vector, and the number of vectors."""

    lanes: int
    number: int | None


class Spread(NamedTuple):
    """Elements of a vector, vectors of a thread, threads of a block."""

    lanes: int
    each: int
    threads: int


def _match(s: Schedule, name: str, _target: Target) -> Elements | None:
    block = s.block_of(name)
    if not is_injective(block) or not has_own_loops(s, name) or not block.iters:
        return None
    lanes, count = lanes_of(block), count_of(s, s.loops(name))
    return Elements(lanes, None if count is None else count // lanes)


def lanes_of(block: Block) -> int:
    """How many contiguous elements one access can take, for all accesses of a block."""
    extents = [extent_of(it) for it in block.iters]
    inner, last = extents[-1], block.iters[-1].var
    if inner is None:
        return 1
    if is_uniform(block) and None not in extents:
        inner = prod(e for e in extents if e is not None)
    accesses, stores = accesses_of(block), stores_of(block)
    written = [Access(store.buffer, store.indices) for store in stores]
    if any(a.step(last) != 1 for a in written):
        return 1
    if any(a.step(last) not in (0, 1) for a in accesses):
        return _rows_as_vectors(block, accesses, written)
    widest = max(a.buffer.dtype.itemsize for a in accesses)
    lanes = WIDE // widest
    while lanes > 1 and inner % lanes:
        lanes //= 2
    return max(1, lanes)


def _rows_as_vectors(block: Block, accesses: Sequence[Access], written: Sequence[Access]) -> int:
    """Elements of a row that one thread writes at once although it reads them far apart, next to
    what the adjacent thread reads: few channels of an image that become contiguous. Otherwise 1."""
    row = extent_of(block.iters[-1])
    is_vector = row is not None and row * max(a.buffer.dtype.itemsize for a in written) <= WIDE
    if not is_vector or row is None or len(block.iters) < 2:
        return 1
    read = [a for a in accesses if a.step(block.iters[-1].var) not in (0, 1)]
    return row if all(a.step(block.iters[-2].var) == 1 for a in read) else 1


def _plan(found: Elements, _target: Target, choices: Choices) -> Spread:
    lanes = choices.choose("lanes", (found.lanes, 1) if found.lanes > 1 else (1,))
    several = found.number is not None and found.number >= _MANY
    each = choices.choose("each", (_SEVERAL, 1, 2, 8) if several else (1, 2, 4))
    own = threads_for(found.number)
    threads = choices.choose("threads", [own, *(n for n in (64, 128, 256, 512) if n != own)])
    return Spread(lanes, each, threads)


def _schedule(s: Schedule, name: str, plan: Spread, _target: Target) -> None:
    """for i: for j: C[i, j] = …

    -->  for b in blocks: for t in threads: for u unrolled: for v in lanes: C[…] = …
    """
    *outer, inner = s.loops(name)
    if is_uniform(s.block_of(name)):
        outer, inner = [], fused(s, [*outer, inner])
    rest, vector = inner, None
    if plan.lanes > 1:
        rest, vector = s.split(inner, None, plan.lanes)
    every = fused(s, [*outer, rest])
    if plan.each > 1:
        block, several, thread = s.split(every, None, plan.each, plan.threads)
        s.reorder(block, thread, several)
        s.bind(block, "blockIdx.x")
        s.bind(thread, "threadIdx.x")
        s.unroll(several)
    else:
        launch(s, every, plan.threads)
    if vector is not None:
        s.vectorize(vector)


ELEMENTS = Rule("elements", _match, _plan, _schedule)
