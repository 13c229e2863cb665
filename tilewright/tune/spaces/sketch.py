"""A schedule that sketches make: what all of their steps need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Block, Const, Store, walk
from tilewright.schedule import BlockRef, Choices, Loop, Schedule
from tilewright.target import Target
from tilewright.tune.spaces.knobs import Knobs

#: What a size counts as that is not known.
UNKNOWN = 1 << 30


@dataclass
class Sketch:
    """One schedule on its way."""

    s: Schedule
    choices: Choices
    target: Target

    def knobs(self, block: BlockRef) -> Knobs:
        """The choices about a block."""
        return Knobs(self.s, self.choices.within(f"sketch({block.name})"))

    def lanes(self, block: BlockRef) -> int:
        """How many elements of a block's result one vector holds."""
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
        """Cut a loop into vectors, so many in straight code; gives what is left of it, if it is
        long enough for that."""
        if self.extent(loop) < lanes * vectors:
            return None
        outer, beside, inner = self.s.split(loop, None, vectors, lanes)
        if vectors > 1:
            self.s.unroll(beside)
        self.vectorize(inner)
        return outer

    def share(self, space: Knobs, loops: Sequence[Loop]) -> None:
        """Share outer loops among threads: the outermost, several as one, or none."""
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
