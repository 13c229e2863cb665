"""Load contiguous scalars as one vector where the machine can multiply by a single lane.

    acc += broadcast(A[k * 8 + 5], 4) * B[…]
    -->
    acc += broadcast(lane(A[ramp(k * 8 + 4, 1, 4)], 1), 4) * B[…]

Eight scalars that are each broadcast to a vector then cost two loads instead of eight, and the
multiply-add takes its factor directly from a lane. The same goes for the groups of narrow elements
that dot products multiply. Only whole aligned groups inside the buffer are loaded.
"""

from __future__ import annotations

from math import prod

from tilewright.arith import divisor, linear
from tilewright.ir import (
    Broadcast,
    Buffer,
    Call,
    Expr,
    Function,
    Load,
    Ramp,
    call,
    const,
    is_const,
    map_expr,
    map_function,
    regroup,
)
from tilewright.target import Target


def group_lanes(function: Function, target: Target) -> Function:
    """Turn broadcasts of elements into broadcasts of lanes, if the target can multiply by lanes."""
    if not target.has_lane_fma:
        return function
    memo: dict[Expr, Expr] = {}

    def rule(node: Expr) -> Expr | None:
        return _from_lane(node, target)

    return map_function(function, lambda _: None, lambda e: map_expr(e, rule, memo))


def _from_lane(node: Expr, target: Target) -> Expr | None:
    if not isinstance(node, Broadcast):
        return None
    found = _factor(node.a)
    if found is None:
        return None
    load, first, count = found
    group = target.lanes(load.dtype)
    if load.mask is not None or _multiple_of(load.buffer) % group or not load.buffer.is_compact:
        return None
    at = linear(first).constant % group
    start = first - at if at else first
    if divisor(start) % group or at % count:
        return None
    vector: Expr = Load(load.buffer, (Ramp(linear(start).expr(), const(1), group),))
    if count > 1:
        vector = regroup(vector, node.dtype.scalar)
    return Broadcast(call("lane", vector, const(at // count)), node.dtype.lanes)


def _factor(e: Expr) -> tuple[Load, Expr, int] | None:
    """The load, its first element, and their number: one float, or a group of narrow elements that
    a dot product takes."""
    if isinstance(e, Load):
        (index,) = e.indices
        return (e, index, 1) if e.dtype.is_float else None
    if not isinstance(e, Call) or not e.name.startswith("reinterpret_"):
        return None
    (load,) = e.args
    if not isinstance(load, Load) or not isinstance(load.indices[0], Ramp):
        return None
    ramp = load.indices[0]
    return (load, ramp.base, ramp.dtype.lanes) if is_const(ramp.stride, 1) else None


def _multiple_of(buffer: Buffer) -> int:
    """A divisor of the number of elements of the buffer."""
    return prod(divisor(d) for d in buffer.shape)
