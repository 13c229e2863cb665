"""Shift bytes by 128 for instructions that take the other signedness (`shift_operand`)."""

from __future__ import annotations

from tilewright.ir import Block, Buffer
from tilewright.schedule.facts.products import is_step
from tilewright.schedule.rules.analysis import as_contraction, constants_of
from tilewright.schedule.rules.products.available import wanted_for, with_other_signs
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _factor_to_shift(s: Schedule, name: str, target: Target) -> int | None:
    """The factor to shift, of a product that has an instruction only for the other signedness."""
    block = s.block_of(name)
    side = _side_to_shift(block, target, constants_of(s.function))
    c = as_contraction(block)
    # In a step of a scan only rows are made in the step, and can be made shifted.
    if side is None or c is None or not s.loops(name) or (is_step(block) and side != 0):
        return None
    return c.factor(side)


def _side_to_shift(block: Block, target: Target, constants: frozenset[Buffer]) -> int | None:
    """Which operand to shift (0: rows, 1: columns); None where that does not help."""
    wanted = wanted_for(block, constants)
    if wanted is None or wanted.is_there(target, wanted.types):
        return None
    for side, types in enumerate(with_other_signs(wanted.types)):
        if types != wanted.types and wanted.is_there(target, types):
            return side
    return None


def _shift(s: Schedule, name: str, factor: int, _target: Target) -> None:
    s.shift_operand(name, factor)


SHIFT = Rule("shift", _factor_to_shift, as_found, _shift)
