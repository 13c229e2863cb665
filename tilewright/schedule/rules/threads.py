"""Loops distributed over the cores, where there is work enough."""

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
    """Makes loops of a schedule parallel, if that `is_worth` it."""

    def __init__(self, s: Schedule, target: Target, *, is_worth: bool) -> None:
        self.s, self.cores, self.is_worth = s, target.cores, is_worth

    def are_busy(self, loops: Sequence[Loop]) -> bool:
        """Whether the iterations of some loops are work enough for all cores that take part."""
        return not self.is_worth or self._busy(loops) >= _BUSY

    def share(self, first: list[Loop], then: list[Loop]) -> None:
        """Fuse loops, all of `first` and as many more as it takes to have work for every core."""
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
        """Without the first and last loops of one iteration, as long as others are left."""
        longer = [k for k, loop in enumerate(loops) if not is_const(self._extent(loop), 1)]
        return loops[longer[0] : longer[-1] + 1] if longer else loops[:1]

    def _extent(self, loop: Loop) -> Expr:
        return self.s.loop_of(loop).extent

    def _busy(self, loops: Sequence[Loop]) -> float:
        """The fraction of the time that cores are busy with the iterations of some loops.

        A size that is known only at run time may well be one.
        """
        extents = [self._extent(loop) for loop in loops]
        count = prod(int(e.value) for e in extents if isinstance(e, Const))
        return count / (-(-count // self.cores) * self.cores)
