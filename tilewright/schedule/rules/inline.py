"""Inline intermediate results into their consumers, where that saves memory and costs little."""

from __future__ import annotations

from tilewright.ir import Block
from tilewright.schedule.facts.products import is_reduction, is_step
from tilewright.schedule.primitives.buffers.merge_dimensions import GATHERS
from tilewright.schedule.rules.analysis import (
    as_contraction,
    constants_of,
    is_cheap,
    is_conditional,
    is_injective,
    is_intermediate,
    looks_up,
)
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.winograd.positions import chooses_by_position
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _is_worth_inlining(s: Schedule, name: str, target: Target) -> bool | None:
    block = s.block_of(name)
    if not is_injective(block) or not is_intermediate(s, block.writes[0].buffer):
        return None
    if chooses_by_position(block):
        return None  # the selects would run again for each element that reads it
    if GATHERS in block.annotations:
        return None  # a copy made on purpose
    uses, constants = [s.block_of(c) for c in s.consumers(name)], constants_of(s.function)
    if any(map(is_step, uses)) and all(r.buffer in constants for r in block.reads):
        return None  # computed once for all steps
    heavy = is_conditional(block) and any(map(_reads_often, uses))
    heavy |= _reads_sums(s, block) and any(as_contraction(u) is not None for u in uses)
    # Tables need registers, which sums leave none of; threads of GPUs read them from memory.
    is_place = target.gpu is None and any(looks_up(u, block.writes[0].buffer) for u in uses)
    heavy |= is_place and _reads_sums(s, block)
    return ((len(uses) == 1 or is_cheap(block)) and not heavy) or None


def _inline(s: Schedule, name: str, _plan: bool, _target: Target) -> None:
    s.compute_inline(name)


INLINE = Rule("inline", _is_worth_inlining, as_found, _inline)


def _reads_sums(s: Schedule, block: Block) -> bool:
    """Whether a block reads the results of a reduction."""
    made = {
        w.buffer for b in s.blocks() if is_reduction(s.block_of(b)) for w in s.block_of(b).writes
    }
    return any(r.buffer in made for r in block.reads)


def _reads_often(block: Block) -> bool:
    """Whether an operand's element is read for many elements of the result."""
    return is_reduction(block) or chooses_by_position(block)
