"""Index expressions in floating point, which has room for what 64 bits do not hold."""

from __future__ import annotations

from typing import Final

from tilewright.ir import Binary, Expr, Unary, binary, cast, const

_KEPT: Final = frozenset({"add", "sub", "mul", "min", "max"})


def rough(e: Expr) -> Expr:
    """About the value that an expression has before it wraps around; quotients are not rounded."""
    if isinstance(e, Binary) and e.op in _KEPT:
        return binary(e.op, rough(e.a), rough(e.b))
    if isinstance(e, Binary) and e.op == "floordiv":
        # No less than the quotient, and no more than by one.
        return binary("div", rough(e.a), rough(e.b))
    if isinstance(e, Unary) and e.op == "neg":
        return binary("sub", const(0.0, "float64"), rough(e.a))
    return cast(e, "float64")
