"""Independent elements: neighbouring threads on neighbouring elements, 16 bytes at a time."""

from __future__ import annotations

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
from tilewright.schedule.rules.gpu.grid import count_of, fused, launch, threads_for
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Bytes that a thread reads or writes at once.
_WIDE: Final = 16
#: Vectors from which on a thread takes several: there are threads enough all the same.
_MANY: Final = 1 << 20
_SEVERAL: Final = 4


class Elements(NamedTuple):
    """How many elements of a block lie side by side in memory, and how many there are of these."""

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
    """How many neighbouring elements one access can take, for all accesses of a block."""
    extents = [extent_of(it) for it in block.iters]
    inner, last = extents[-1], block.iters[-1].var
    if inner is None:
        return 1
    if is_uniform(block) and None not in extents:
        inner = prod(e for e in extents if e is not None)
    accesses, stores = accesses_of(block), stores_of(block)
    written = [Access(store.buffer, store.indices).step(last) for store in stores]
    if any(a.step(last) not in (0, 1) for a in accesses) or set(written) != {1}:
        return 1
    widest = max(a.buffer.dtype.itemsize for a in accesses)
    lanes = _WIDE // widest
    while lanes > 1 and inner % lanes:
        lanes //= 2
    return max(1, lanes)


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
