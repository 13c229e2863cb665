"""The space of the default rules: their tiles, orders, packing and chunks, defaults first.

The first choices are the rules' inputs: machine parameters (`figures`), and the number of threads
for small kernels: the schedule for one core may be faster than that for all, whose threads must
synchronize.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.ir import Block, Function, walk
from tilewright.schedule import RULES_BY_ADDRESS, Choices, Schedule, instances
from tilewright.target import Target
from tilewright.tune.spaces.figures import Figures
from tilewright.tune.spaces.space import Space

#: Kernels are small if they do at most this multiple of the work that is worth threads.
_LIGHT: Final = 32


def rule_space(function: Function, target: Target) -> Space:
    """The schedules that the rules can make of a kernel of a model."""
    figures = Figures(function)
    cores = (target.cores, 1) if _is_light(function, target) else (target.cores,)

    def decide(s: Schedule, choices: Choices) -> None:
        machine = figures.choose(target, choices)
        machine = replace(machine, cores=choices.choose("threads", cores))
        RULES_BY_ADDRESS.decide(s, machine, choices)

    return Space(function, decide)


def _is_light(function: Function, target: Target) -> bool:
    if target.kind.device != "cpu" or target.cores < 2:
        return False
    work = sum(instances(b) for b in walk(function.body) if isinstance(b, Block))
    return work <= _LIGHT * target.timing.fork_operations
