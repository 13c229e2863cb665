"""Lowering: from scheduled blocks to flat loops that a code generator can print."""

from tilewright.lower.arena import ArenaPlan, arena_plan
from tilewright.lower.host import lower_host
from tilewright.lower.math import expand
from tilewright.lower.pipeline import lower
from tilewright.lower.prepare import Prepared, split_constant_work

__all__ = [
    "ArenaPlan",
    "Prepared",
    "arena_plan",
    "expand",
    "lower",
    "lower_host",
    "split_constant_work",
]
