"""Epilogues: what follows a reduction, element by element, in the tile that was just computed.

    for tile: accumulators += …; output = f(accumulators)                     all unrolled

Where f takes many operations, there are too few registers for its constants and intermediate values
beside the accumulators. These are stored first, and loaded again a few vectors at a time:

    for tile: accumulators += …; tile = accumulators; for few vectors: output = f(tile)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tilewright.ir import Const, const
from tilewright.schedule.facts.products import is_step
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import operations, stores_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Epilogues of at least so many operations, as many as a transcendental function counts, are
#: computed a few vectors at a time.
_LONG: Final = 20
#: Bytes of the narrowest register that vectors have.
_STORED: Final = 16
#: How many vectors are unrolled at most.
_UNROLLED: Final = 16


def begin_epilogue(s: Schedule, name: str) -> list[str]:
    """The blocks that read the results of `name`, in order; a plain copy if there is none.

    The results themselves stay in the tile.
    """
    out = stores_of(s.block_of(name))[0].buffer
    # What follows in a step of a scan may read all results of the step at once.
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
    """Compute these blocks in the loop over tiles, by vectors."""
    for name in names:
        if s.can("reverse_compute_at", name, loop):
            loops = s.reverse_compute_at(name, loop)
            wide = lanes_of_stores(s, name, loops, lanes)
            most = max(1, target.chains * lanes // wide) if is_long(s, name) else None
            vectorize_tile(s, loops, wide, most)


def lanes_of_stores(s: Schedule, name: str, loops: Sequence[Loop], lanes: int) -> int:
    """The lanes of sums, or more where results are narrower, so that these are stored by whole
    registers where the tile is as wide."""
    extent = s.loop_of(loops[-1]).extent if loops else None
    wide = _STORED // stores_of(s.block_of(name))[0].buffer.dtype.itemsize
    fits = isinstance(extent, Const) and extent.value % wide == 0
    return max(lanes, wide) if fits else lanes


def vectorize_tile(
    s: Schedule, loops: Sequence[Loop], lanes: int, at_a_time: int | None = None
) -> None:
    """Vectorize the innermost loop of a small nest and unroll the others, or about so many
    vectors."""
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
        # As a function of its own it has all registers for itself.
        s.annotate(long[0], "outline")


def _cut(s: Schedule, loops: Sequence[Loop], most: int) -> tuple[list[Loop], list[Loop]]:
    """The innermost of `loops`, the last of them split evenly, so that about `most` vectors are
    unrolled; and those of the others that have more than one iteration.

    More than `most` are unrolled where they fill groups of `most` better: 7 of 14 make 4 and 3.
    """
    _, (inner, part) = max(_parts(s, loops), key=lambda p: (_per_group(p[0], most), -p[0]))
    others, chosen = list(loops[: len(loops) - inner]), list(loops[len(loops) - inner :])
    if part > 1:
        rest, within = s.split(others.pop(), None, part)
        others.append(rest)
        chosen.insert(0, within)
    return chosen, [loop for loop in others if s.loop_of(loop).extent is not const(1)]


def _parts(s: Schedule, loops: Sequence[Loop]) -> Iterator[tuple[int, tuple[int, int]]]:
    """How many vectors may be unrolled: all of so many inner loops, and a part of the next."""
    together = 1
    yield 1, (0, 1)
    for inner, loop in enumerate(reversed(loops)):
        extent = s.loop_of(loop).extent
        if not isinstance(extent, Const):
            return
        whole = int(extent.value)
        for part in range(2, min(whole, _UNROLLED // together + 1)):
            if whole % part == 0:
                yield together * part, (inner, part)
        together *= whole
        if together > _UNROLLED:
            return
        yield together, (inner + 1, 1)


def _per_group(count: int, most: int) -> float:
    return count / -(-count // most)
