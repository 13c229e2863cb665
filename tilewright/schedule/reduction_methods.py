"""The methods of a schedule that decompose reductions and map tiles to tensor intrinsics."""

from __future__ import annotations

from tilewright.schedule.handles import BlockLike, BlockRef, Loop, LoopLike
from tilewright.schedule.state import ScheduleState
from tilewright.schedule.tensor_intrin import TensorIntrin, register_intrin


class ReductionMethods(ScheduleState):
    """Reduction and tensor primitives; their files, below `primitives`, show before and after."""

    def decompose_reduction(self, block: BlockLike, loop: LoopLike) -> BlockRef:
        """Move the init of a reduction to a new block, in new loops before `loop`; gives it."""
        return self._apply("decompose_reduction", self.block(block), self.loop(loop))[0]

    def rfactor(self, loop: LoopLike, axis: int = 0) -> BlockRef:
        """Make a loop of a reduction spatial; gives the block of the partial results.

        The block that combines them keeps the old name.
        """
        return self._apply("rfactor", self.loop(loop), axis)[0]

    def factor_out(self, block: BlockLike) -> None:
        """Multiply a sum by a factor common to all its terms, rather than each term."""
        self._apply("factor_out", self.block(block))

    def blockize(self, loop: LoopLike) -> BlockRef:
        """Make one block of a loop and its body; gives the new block."""
        return self._apply("blockize", self.loop(loop))[0]

    def tensorize(self, target: Loop | BlockLike, intrin: TensorIntrin | str) -> BlockRef:
        """Replace a block, or the body of a loop, by a tensor intrinsic; gives its block."""
        if isinstance(intrin, TensorIntrin):
            intrin = register_intrin(intrin).name
        tile = target if isinstance(target, Loop) else self.block(target)
        return self._apply("tensorize", tile, intrin)[0]
