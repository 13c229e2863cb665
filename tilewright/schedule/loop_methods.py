"""The methods of a schedule that shape loops."""

from __future__ import annotations

from tilewright.schedule.handles import Loop, LoopLike
from tilewright.schedule.state import ScheduleState


class LoopMethods(ScheduleState):
    """Loop primitives; `schedule/primitives/NAME.py` shows before and after."""

    def split(self, loop: LoopLike, *factors: int | None) -> tuple[Loop, ...]:
        """Cut a loop into nested ones of these extents, outermost first; None is inferred.

        One factor alone is the inner one. Where the factors do not divide, blocks get a predicate.
        """
        return self._apply("split", self.loop(loop), *factors)

    def fuse(self, *loops: LoopLike) -> Loop:
        """Make one loop of loops that stand directly one in the other, outermost first."""
        return self._apply("fuse", *map(self.loop, loops))[0]

    def reorder(self, *loops: LoopLike) -> None:
        """Put loops of one nest in this order; others of the nest stay in place."""
        self._apply("reorder", *map(self.loop, loops))
