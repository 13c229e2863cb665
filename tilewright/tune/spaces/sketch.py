"""A schedule under construction by sketches, and operations common to their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Block, Const, Store, walk
from tilewright.schedule import BlockRef, Choices, Loop, Schedule
from tilewright.target import Target
from tilewright.tune.spaces.knobs import Knobs

#: The value assumed for an unknown extent.
UNKNOWN = 1 << 30


@dataclass
class Sketch:
    """A schedule under construction."""

    s: Schedule
    choices: Choices
    target: Target

    def knobs(self, block: BlockRef) -> Knobs:
        """The choices about a block."""
        return Knobs(self.s, self.choices.within(f"sketch({block.name})"))

    def lanes(self, block: BlockRef) -> int:
        """The number of elements of a block's result in a vector."""
        stores = [x for x in walk(self.s.block_of(block).body) if isinstance(x, Store)]
        return self.target.lanes(stores[0].buffer.dtype) if stores else 1

    def extent(self, loop: Loop) -> int:
        extent = self.s.loop_of(loop).extent
        return int(extent.value) if isinstance(extent, Const) else UNKNOWN

    def is_sum(self, block: BlockRef) -> bool:
        return is_reduction(self.s.block_of(block))

    def vectorize(self, loop: Loop) -> None:
        if self.s.can("vectorize", loop):
            self.s.vectorize(loop)

    def in_vectors(self, loop: Loop, lanes: int, vectors: int = 1) -> Loop | None:
        """Split a loop into vectors, `vectors` of them unrolled; gives the outer loop, or None if
        the loop is too short."""
        if self.extent(loop) < lanes * vectors:
            return None
        outer, beside, inner = self.s.split(loop, None, vectors, lanes)
        if vectors > 1:
            self.s.unroll(beside)
        self.vectorize(inner)
        return outer

    def share(self, space: Knobs, loops: Sequence[Loop]) -> None:
        """Parallelize outer loops: several fused, the outermost, or none."""
        if self.target.cores == 1 or not loops:
            return
        count = min(3, len(loops))
        taken = space.choice("shared", (*range(count, 0, -1), 0))
        if not taken:
            return
        outer = loops[0]
        if taken > 1 and self.s.can("fuse", *loops[:taken]):
            outer = self.s.fuse(*loops[:taken])
        if self.s.can("parallel", outer):
            self.s.parallel(outer)


def is_reduction(block: Block) -> bool:
    return any(it.kind == "reduce" for it in block.iters)
