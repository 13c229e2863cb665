"""The passes that make a host program ready for code generation; it has no blocks to lower."""

from __future__ import annotations

from tilewright.ir import Function
from tilewright.lower.arena import plan_arena
from tilewright.lower.flatten import flatten


def lower_host(function: Function) -> Function:
    """`function` with its buffers in one arena and every access by one index."""
    return flatten(plan_arena(function))
