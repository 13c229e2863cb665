"""The passes that prepare a host program for code generation; it has no blocks to lower."""

from __future__ import annotations

from tilewright.ir import Function
from tilewright.lower.arena import plan_arena
from tilewright.lower.flatten import flatten
from tilewright.lower.gpu import reach_device
from tilewright.target import Target


def lower_host(function: Function, target: Target) -> Function:
    """`function` with its buffers in one arena and a single index per access."""
    if target.host is not None:
        function = reach_device(function)
    return flatten(plan_arena(function, side_by_side=target.host is not None))
