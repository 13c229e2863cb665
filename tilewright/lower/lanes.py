"""Read neighbouring scalars as one vector where the machine multiplies by single lanes.

    acc += broadcast(A[k * 8 + 5], 4) * B[…]
    -->
    acc += broadcast(lane(A[ramp(k * 8 + 4, 1, 4)], 1), 4) * B[…]

Eight scalars that are each broadcast to a vector then cost two loads instead of eight, and the
multiply-add takes its factor straight from a lane. Only whole aligned groups inside the buffer are
read.
"""

from __future__ import annotations

from math import prod

from tilewright.arith import divisor, linear
from tilewright.ir import (
    Broadcast,
    Buffer,
    Expr,
    Function,
    Load,
    Ramp,
    call,
    const,
    map_expr,
    map_function,
)
from tilewright.target import Target


def group_lanes(function: Function, target: Target) -> Function:
    """Broadcasts of elements become broadcasts of lanes, where a lane can be multiplied by."""
    if not target.has_lane_fma:
        return function
    memo: dict[Expr, Expr] = {}

    def rule(node: Expr) -> Expr | None:
        return _from_lane(node, target)

    return map_function(function, lambda _: None, lambda e: map_expr(e, rule, memo))


def _from_lane(node: Expr, target: Target) -> Expr | None:
    if not isinstance(node, Broadcast) or not isinstance(node.a, Load):
        return None
    load = node.a
    (index,) = load.indices
    group = target.lanes(load.dtype)
    if not load.dtype.is_float or load.mask is not None or _multiple_of(load.buffer) % group:
        return None
    lane = linear(index).constant % group
    start = index - lane if lane else index
    if divisor(start) % group or not load.buffer.is_compact:
        return None
    vector = Load(load.buffer, (Ramp(linear(start).expr(), const(1), group),))
    return Broadcast(call("lane", vector, const(lane)), node.dtype.lanes)


def _multiple_of(buffer: Buffer) -> int:
    """A number that divides how many elements the buffer has."""
    return prod(divisor(d) for d in buffer.shape)
