"""Choose a rule for every block."""

from __future__ import annotations

from tilewright.ir import Function
from tilewright.target import Target


def schedule_by_rules(function: Function, target: Target) -> Function:
    """`function` under the default schedule for `target`."""
    del target
    return function
