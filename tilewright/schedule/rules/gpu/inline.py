"""Padding and other choices folded into the reductions that read them.

On a CPU these are made once, before they are read again and again; here memory is far and threads
have time.
"""

from __future__ import annotations

from tilewright.schedule.rules.analysis import (
    as_contraction,
    is_cheap,
    is_conditional,
    is_injective,
    is_intermediate,
)
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _match(s: Schedule, name: str, _target: Target) -> bool | None:
    block = s.block_of(name)
    if not is_injective(block) or not is_intermediate(s, block.writes[0].buffer):
        return None
    uses = [s.block_of(c) for c in s.consumers(name)]
    is_product = any(as_contraction(use) is not None for use in uses)
    return (is_conditional(block) and is_cheap(block) and not is_product) or None


def _inline(s: Schedule, name: str, _plan: bool, _target: Target) -> None:
    s.compute_inline(name)


INLINE_CHOICES = Rule("inline_choices", _match, as_found, _inline)
