"""The space of the default rules: their tiles, orders, packing and chunks, their own first.

Threads are the first choice for kernels of little work: what the rules would make for one core may
be faster than what they make for all of them, whose threads have to meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.ir import Block, Function, walk
from tilewright.schedule import RULES_BY_ADDRESS, Choices, Schedule, instances
from tilewright.target import Target
from tilewright.tune.spaces.space import Space

#: Kernels are light that do no more than so many times what is worth threads at all.
_LIGHT: Final = 32


def rule_space(function: Function, target: Target) -> Space:
    """What the rules can make of a kernel of a model."""
    if not _is_light(function, target):
        return Space(function, lambda s, choices: RULES_BY_ADDRESS.decide(s, target, choices))
    by_cores = {n: replace(target, cores=n) for n in (target.cores, 1)}

    def decide(s: Schedule, choices: Choices) -> None:
        cores = choices.choose("threads", tuple(by_cores))
        RULES_BY_ADDRESS.decide(s, by_cores[cores], choices)

    return Space(function, decide)


def _is_light(function: Function, target: Target) -> bool:
    if target.kind.device != "cpu" or target.cores < 2:
        return False
    work = sum(instances(b) for b in walk(function.body) if isinstance(b, Block))
    return work <= _LIGHT * target.timing.fork_operations
