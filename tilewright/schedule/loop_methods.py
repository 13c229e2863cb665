"""The methods of a schedule that shape loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.schedule.handles import BlockLike, BlockRef, Loop, LoopLike
from tilewright.schedule.state import ScheduleState


class LoopMethods(ScheduleState):
    """Loop primitives; their files, below `primitives`, show before and after."""

    def split(self, loop: LoopLike, *factors: int | None) -> tuple[Loop, ...]:
        """Split a loop into nested ones of these extents, outermost first; None is inferred.

        A single factor is the inner one. Where the factors do not divide, blocks get a predicate.
        """
        return self._apply("split", self.loop(loop), *factors)

    def fuse(self, *loops: LoopLike) -> Loop:
        """Make one loop of perfectly nested loops, outermost first."""
        return self._apply("fuse", *map(self.loop, loops))[0]

    def merge(self, first: LoopLike, second: LoopLike) -> Loop:
        """Make one loop of two consecutive ones with equal extents."""
        return self._apply("merge", self.loop(first), self.loop(second))[0]

    def merge_online(
        self, first: LoopLike, second: LoopLike, greatest: BlockLike
    ) -> tuple[Loop, list[BlockRef]]:
        """Merge a loop with a later one that reads the maximum that `greatest` computes from the
        first; gives the loop, and the blocks that rescale sums when the maximum grows."""
        loops = self.loop(first), self.loop(second)
        loop, *blocks = self._apply("merge_online", *loops, self.block(greatest))
        return loop, blocks

    def reorder(self, *loops: LoopLike) -> None:
        """Put loops of one nest in this order; the other loops of the nest stay in place."""
        self._apply("reorder", *map(self.loop, loops))

    def tile(
        self, i: LoopLike, j: LoopLike, i_factor: int, j_factor: int
    ) -> tuple[Loop, Loop, Loop, Loop]:
        """Cut two loops of one nest into tiles; gives the outer two, then the inner two."""
        i0, j0, i1, j1 = self._apply("tile", self.loop(i), self.loop(j), i_factor, j_factor)
        return i0, j0, i1, j1

    def loop_partition(self, loop: LoopLike, *points: int) -> tuple[Loop, ...]:
        """Cut the range of a loop at these points into consecutive loops."""
        return self._apply("loop_partition", self.loop(loop), *points)

    def peel(self, loop: LoopLike, size: int) -> tuple[Loop, Loop]:
        """Split a loop into one over whole multiples of `size` and one over the remainder."""
        whole, rest = self._apply("peel", self.loop(loop), size)
        return whole, rest

    def unroll(self, loop: LoopLike) -> None:
        """Unroll a loop: its iterations are written out one after the other."""
        self._apply("unroll", self.loop(loop))

    def vectorize(self, loop: LoopLike) -> None:
        """Turn the iterations of a loop into lanes of vectors; its extent must be constant."""
        self._apply("vectorize", self.loop(loop))

    def parallel(self, loop: LoopLike) -> None:
        """Run the iterations of a loop on several threads."""
        self._apply("parallel", self.loop(loop))

    def bind(self, loop: LoopLike, axis: str) -> None:
        """Give each iteration of a loop to one thread or block: `threadIdx.x`, `blockIdx.y`, …"""
        self._apply("bind", self.loop(loop), axis)

    def add_unit_loop(self, block: BlockLike) -> Loop:
        """Put a loop of one iteration around a block."""
        return self._apply("add_unit_loop", self.block(block))[0]

    def launch_rest(self, threads: int = 64) -> None:
        """Launch what is in no launch yet: parallel loops over threads, the rest in one thread."""
        self._apply("launch_rest", threads)

    def annotate(self, target: Loop | BlockLike, key: str, value: Any = True) -> None:
        """Annotate a loop or a block (which may be given by name) for later stages."""
        self._apply("annotate", self._target(target), key, value)

    def unannotate(self, target: Loop | BlockLike, key: str) -> None:
        """Remove an annotation from a loop or a block."""
        self._apply("unannotate", self._target(target), key)

    def sample_tile(
        self,
        loop: LoopLike,
        parts: int,
        *,
        max_inner: int = 64,
        perfect: bool = True,
        decision: Sequence[int] | None = None,
    ) -> tuple[int, ...]:
        """Draw factors for splitting a loop; the trace keeps them as a decision to vary."""
        arguments = self.loop(loop), parts, max_inner, perfect
        return self._sample("sample_tile", *arguments, decision=decision)

    def sample_choice(
        self,
        candidates: Sequence[int],
        weights: Sequence[float] | None = None,
        *,
        decision: int | None = None,
    ) -> int:
        """Draw one of several integers; the trace keeps its position as a decision to vary."""
        weights = None if weights is None else tuple(weights)
        return self._sample("sample_choice", tuple(candidates), weights, decision=decision)[0]

    def _target(self, target: Loop | BlockLike) -> Loop | BlockRef:
        return target if isinstance(target, Loop) else self.block(target)
