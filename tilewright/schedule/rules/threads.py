"""Distributes loops over the cores, where there is enough work."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir import Const, Expr, is_const
from tilewright.schedule.handles import Loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: More loops are fused until cores are busy for at least this fraction of the time.
_BUSY = 0.9


class Threads:
    """Parallelizes loops of a schedule, if that `is_worth` it."""

    def __init__(self, s: Schedule, target: Target, *, is_worth: bool) -> None:
        self.s, self.cores, self.is_worth = s, target.cores, is_worth

    def are_busy(self, loops: Sequence[Loop]) -> bool:
        """Whether the iterations of these loops keep all cores busy, if threads are used at all."""
        return not self.is_worth or self._busy(loops) >= _BUSY

    def share(self, first: list[Loop], then: list[Loop]) -> None:
        """Fuse and parallelize loops: `first`, and as many of `then` as keep every core busy."""
        if not self.is_worth:
            return
        loops = [*first, *then]
        chosen, others = loops[: max(1, len(first))], loops[max(1, len(first)) :]
        for loop in others:
            if self.are_busy(chosen) or not self.s.can("fuse", *chosen, loop):
                break
            chosen.append(loop)
        chosen = self._without_single(chosen)
        self.s.parallel(self.s.fuse(*chosen) if len(chosen) > 1 else chosen[0])

    def _without_single(self, loops: list[Loop]) -> list[Loop]:
        """Drop the first and last loops of one iteration, as long as others remain."""
        longer = [k for k, loop in enumerate(loops) if not is_const(self._extent(loop), 1)]
        return loops[longer[0] : longer[-1] + 1] if longer else loops[:1]

    def _extent(self, loop: Loop) -> Expr:
        return self.s.loop_of(loop).extent

    def _busy(self, loops: Sequence[Loop]) -> float:
        """The fraction of the time that cores are busy with the iterations of these loops.

        A size that is known only at run time counts as 1.
        """
        extents = [self._extent(loop) for loop in loops]
        count = prod(int(e.value) for e in extents if isinstance(e, Const))
        return count / (-(-count // self.cores) * self.cores)
