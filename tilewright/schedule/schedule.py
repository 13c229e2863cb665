"""The schedule: a loop function and the primitives that reshape it, one method each.

    s = Schedule(function)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, None, 8)
    s.reorder(i0, j, k, i1)
    s.vectorize(i1)
    print(s)                         # the loops as they stand
    print(s.trace)                   # the steps, replayable: s.trace.replay(function)

A primitive that would change what the function computes is refused with a `ScheduleError`; the
schedule is then as it was.
"""

from __future__ import annotations

from tilewright.schedule.block_methods import BlockMethods
from tilewright.schedule.loop_methods import LoopMethods
from tilewright.schedule.reduction_methods import ReductionMethods


class Schedule(LoopMethods, ReductionMethods, BlockMethods):
    """A function under edit."""
