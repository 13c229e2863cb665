"""Inlines padding and other selects into the reductions that read them.

On a CPU these are computed once, since they are read repeatedly; here memory is far and threads
have spare time.
"""

from __future__ import annotations

from typing import Final

from tilewright.schedule.rules.analysis import (
    is_conditional,
    is_injective,
    is_intermediate,
    is_scheduled,
    operations,
)
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The most operations that may be repeated for each use: those of padding on all sides.
_MOST: Final = 40


def _match(s: Schedule, name: str, _target: Target) -> bool | None:
    block = s.block_of(name)
    if not is_injective(block) or not is_intermediate(s, block.writes[0].buffer):
        return None
    is_taken = any(is_scheduled(s, c.name) for c in s.consumers(name))
    return (is_conditional(block) and operations(block) <= _MOST and not is_taken) or None


def _inline(s: Schedule, name: str, _plan: bool, _target: Target) -> None:
    s.compute_inline(name)


INLINE_CHOICES = Rule("inline_choices", _match, as_found, _inline)
