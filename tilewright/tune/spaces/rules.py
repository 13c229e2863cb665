"""The space of the default rules: their tiles, orders, packing and chunks, their own first."""

from __future__ import annotations

from tilewright.ir import Function
from tilewright.schedule import RULES_BY_ADDRESS
from tilewright.target import Target
from tilewright.tune.spaces.space import Space


def rule_space(function: Function, target: Target) -> Space:
    """What the rules can make of a kernel of a model."""
    return Space(function, lambda s, choices: RULES_BY_ADDRESS.decide(s, target, choices))
