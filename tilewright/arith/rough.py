"""Index expressions in floating point, where values do not wrap around that exceed 64 bits."""

from __future__ import annotations

from typing import Final

from tilewright.ir import Binary, Expr, Unary, binary, cast, const

_KEPT: Final = frozenset({"add", "sub", "mul", "min", "max"})


def rough(e: Expr) -> Expr:
    """Roughly the value of an expression without wrapping around; quotients are not rounded."""
    if isinstance(e, Binary) and e.op in _KEPT:
        return binary(e.op, rough(e.a), rough(e.b))
    if isinstance(e, Binary) and e.op == "floordiv":
        # Not less than the quotient, and greater by at most one.
        return binary("div", rough(e.a), rough(e.b))
    if isinstance(e, Unary) and e.op == "neg":
        return binary("sub", const(0.0, "float64"), rough(e.a))
    return cast(e, "float64")
