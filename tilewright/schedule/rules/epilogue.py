"""Epilogues: elementwise consumers of a reduction, computed in the tile that was just reduced.

    for tile: accumulators += …; output = f(accumulators)                     all unrolled

Where f takes many operations, registers cannot hold its constants and intermediate values beside
the accumulators. These are stored first, and loaded again a few vectors at a time:

    for tile: accumulators += …; tile = accumulators; for few vectors: output = f(tile)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Final

from tilewright.ir import Const, const, free_vars
from tilewright.schedule.facts.products import is_step
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import accesses_of, operations, stores_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Epilogues of at least this many operations, as many as a transcendental function counts, are
#: computed a few vectors at a time.
_LONG: Final = 20
#: Bytes of the narrowest vector register.
_STORED: Final = 16
#: The most vectors that are unrolled in a long epilogue.
_UNROLLED: Final = 16
#: The same for a short one.
_WRITTEN_OUT: Final = 64


def begin_epilogue(s: Schedule, name: str) -> list[str]:
    """The blocks that read the results of `name`, in order; a new copy if there are none.

    The results themselves stay in the tile.
    """
    out = stores_of(s.block_of(name))[0].buffer
    # In a scan, consumers may need all results of a step, so nothing is fused.
    if is_step(s.block_of(name)) or out in s.function.buffers:
        return [s.cache_write(name, 0, "local").name]
    following = [b.name for b in s.consumers(name)]
    if any(is_long(s, f) for f in following):
        return [s.cache_write(name, 0, "local").name, *following]
    s.set_scope(name, out, "local")
    return following


def is_long(s: Schedule, name: str) -> bool:
    return operations(s.block_of(name)) >= _LONG


def place_epilogue(
    s: Schedule, names: Sequence[str], loop: Loop, lanes: int, target: Target
) -> None:
    """Compute these blocks in the loop over tiles, vectorized."""
    for name in names:
        if s.can("reverse_compute_at", name, loop):
            loops = s.reverse_compute_at(name, loop)
            wide = lanes_of_stores(s, name, loops, lanes)
            if is_long(s, name):
                vectorize_tile(s, loops, wide, max(1, target.chains * lanes // wide))
            else:
                vectorize_tile(s, loops[_repeated(s, name, loops, wide) :], wide)


def lanes_of_stores(s: Schedule, name: str, loops: Sequence[Loop], lanes: int) -> int:
    """The lanes of the sums, or more for narrower results, so that whole or half registers are
    stored if the tile is wide enough."""
    extent = s.loop_of(loops[-1]).extent if loops else None
    wide = _STORED // stores_of(s.block_of(name))[0].buffer.dtype.itemsize
    while wide > lanes and not (isinstance(extent, Const) and extent.value % wide == 0):
        wide //= 2
    return max(lanes, wide)


def _repeated(s: Schedule, name: str, loops: Sequence[Loop], lanes: int) -> int:
    """How many of the outer loops are not unrolled: where the code would be large, those that reuse
    the same registers in each iteration."""
    block = s.block_of(name)
    kept = [i for a in accesses_of(block) if a.buffer.scope == "local" for i in a.indices]
    chosen = {v for i in kept for v in free_vars(i)}
    bound = zip(block.iters, block.bindings, strict=True)
    registers = {v for it, b in bound if it.var in chosen for v in free_vars(b)}
    extents = [s.loop_of(loop).extent for loop in loops]
    sizes = [int(e.value) if isinstance(e, Const) else 1 for e in extents]
    count = 0
    while (
        prod(sizes[count:]) > _WRITTEN_OUT * lanes
        and count < len(loops) - 1
        and loops[count].var not in registers
    ):
        count += 1
    return count


def vectorize_tile(
    s: Schedule, loops: Sequence[Loop], lanes: int, at_a_time: int | None = None
) -> None:
    """Vectorize a small nest's innermost loop; unroll the others, or about `at_a_time` vectors."""
    if not loops:
        return
    *outer, inner = loops
    extent = s.loop_of(inner).extent
    if isinstance(extent, Const) and extent.value > lanes:
        middle, inner = s.split(inner, None, lanes)
        outer.append(middle)
    s.vectorize(inner)
    short, long = (outer, []) if at_a_time is None else _cut(s, outer, at_a_time)
    for loop in short:
        s.unroll(loop)
    if long:
        # As a separate function it can use all registers.
        s.annotate(long[0], "outline")


def _cut(s: Schedule, loops: Sequence[Loop], most: int) -> tuple[list[Loop], list[Loop]]:
    """The loops over about `most` vectors, to be unrolled, and those around them that have more
    than one iteration; loops are split evenly and reordered for that.

    More than `most` are unrolled where that fills groups of `most` better: 7 make 4 and 3, which is
    better than 2. Among equally good numbers the smallest is taken.
    """
    extents = [s.loop_of(loop).extent for loop in loops]
    sizes = [int(e.value) if isinstance(e, Const) else None for e in extents]
    factors = max(_factors(sizes), key=lambda f: (_per_group(prod(f), most), -prod(f), f[::-1]))
    inside, around, nest = list[Loop](), list[Loop](), list[Loop]()
    for loop, size, factor in zip(loops, sizes, factors, strict=True):
        parts = [loop] if factor in (1, size) else [*s.split(loop, None, factor)]
        nest += parts
        if factor > 1:
            inside.append(parts.pop())
        around += parts
    if nest != [*around, *inside]:
        s.reorder(*around, *inside)
    return inside, [loop for loop in around if s.loop_of(loop).extent is not const(1)]


def _factors(sizes: Sequence[int | None]) -> Iterator[tuple[int, ...]]:
    """How many iterations of each loop may be unrolled together: all combinations."""
    divisors = [[d for d in range(1, _UNROLLED + 1) if (n or 1) % d == 0] for n in sizes]
    return (f for f in product(*divisors) if prod(f) <= _UNROLLED)


def _per_group(count: int, most: int) -> float:
    return count / -(-count // most)
