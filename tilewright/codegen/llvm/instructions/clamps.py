"""Matches values clamped between two constants, in front of conversions to narrow integers."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Binary, Broadcast, Const, Expr


class Clamp(NamedTuple):
    """A value clamped to [low, high]."""

    value: Expr
    low: float
    high: float


def as_clamp(expr: Expr) -> Clamp | None:
    """Matches min(max(value, low), high), in either order."""
    bounds: dict[str, float] = {}
    while len(bounds) < 2:
        if not isinstance(expr, Binary) or expr.op not in ("min", "max") or expr.op in bounds:
            return None
        bound, inner = constant_side(expr)
        if bound is None:
            return None
        bounds[expr.op], expr = bound, inner
    return Clamp(expr, bounds["max"], bounds["min"])


def as_shifted(expr: Expr) -> tuple[Expr, float] | None:
    """A value and the constant added to it, 0 without a sum; None where the addend is variable."""
    if not isinstance(expr, Binary) or expr.op != "add":
        return expr, 0
    added, inner = constant_side(expr)
    return None if added is None else (inner, added)


def constant_side(node: Binary) -> tuple[float | None, Expr]:
    """The constant operand and the other one; (None, node) where neither is constant."""
    for side, other in ((node.b, node.a), (node.a, node.b)):
        value = side.a if isinstance(side, Broadcast) else side
        if isinstance(value, Const):
            return value.value, other
    return None, node
