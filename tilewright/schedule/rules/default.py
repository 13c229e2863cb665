"""Choose a rule for every block."""

from __future__ import annotations

from tilewright.ir import Alloc, Buffer, Function, walk
from tilewright.schedule.rules.analysis import (
    is_cheap,
    is_conditional,
    is_injective,
    is_reduction,
)
from tilewright.schedule.rules.contraction import plan_contraction, schedule_contraction
from tilewright.schedule.rules.elementwise import schedule_elementwise
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def schedule_by_rules(function: Function, target: Target) -> Function:
    """`function` under the default schedule for `target`."""
    s = Schedule(function)
    inline_cheap(s)
    for block in s.blocks():
        plan = plan_contraction(s.block_of(block), target)
        if plan is not None:
            schedule_contraction(s, block.name, plan, target)
    for block in s.blocks():
        if is_injective(s.block_of(block)) and not _is_scheduled(s, block.name):
            schedule_elementwise(s, block.name, target)
    return s.function


def inline_cheap(s: Schedule) -> None:
    """Fold intermediate results into their uses where that saves memory and costs no arithmetic."""
    for ref in s.blocks():
        block = s.block_of(ref)
        if not is_injective(block) or not _is_intermediate(s, block.writes[0].buffer):
            continue
        uses = [s.block_of(c) for c in s.consumers(ref)]
        heavy = is_conditional(block) and any(is_reduction(u) for u in uses)
        if (len(uses) == 1 or is_cheap(block)) and not heavy and s.can("compute_inline", ref):
            s.compute_inline(ref)


def _is_scheduled(s: Schedule, name: str) -> bool:
    return any(s.loop_of(loop).kind != "serial" for loop in s.loops(name))


def _is_intermediate(s: Schedule, buffer: Buffer) -> bool:
    return any(isinstance(a, Alloc) and buffer in a.buffers for a in walk(s.function.body))
