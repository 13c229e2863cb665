"""Values that are held between two constants, as conversions to narrow integers find them."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Binary, Broadcast, Const, Expr


class Clamp(NamedTuple):
    """A value that is no less than `low` and no more than `high`."""

    value: Expr
    low: float
    high: float


def as_clamp(expr: Expr) -> Clamp | None:
    """min(max(value, low), high), in whatever order."""
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
    """A value, and the constant that is added to it; None where what is added is none."""
    if not isinstance(expr, Binary) or expr.op != "add":
        return expr, 0
    added, inner = constant_side(expr)
    return None if added is None else (inner, added)


def constant_side(node: Binary) -> tuple[float | None, Expr]:
    """The operand that is a constant, and the other one."""
    for side, other in ((node.b, node.a), (node.a, node.b)):
        value = side.a if isinstance(side, Broadcast) else side
        if isinstance(value, Const):
            return value.value, other
    return None, node
