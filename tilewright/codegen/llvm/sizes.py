"""Numbers of bytes that do not wrap around: what is too large for any memory stays too large."""

from __future__ import annotations

from typing import Final

from tilewright.ir import Binary, Const, Expr, Unary, binary, cast, const, maximum, select

#: No memory holds so many bytes.
TOO_MANY: Final = 1 << 60
_KEPT: Final = frozenset({"add", "sub", "mul", "min", "max"})


def saturated(size: Expr) -> Expr:
    """A number of bytes; `TOO_MANY` where the true one is larger, even if it wraps around."""
    if isinstance(size, Const):
        return const(min(int(size.value), TOO_MANY))
    limit = const(float(TOO_MANY), "float64")
    return select(_rough(size) < limit, maximum(size, 0), const(TOO_MANY))


def _rough(e: Expr) -> Expr:
    """The expression in floating point, which has room for everything."""
    if isinstance(e, Binary) and e.op in _KEPT:
        return binary(e.op, _rough(e.a), _rough(e.b))
    if isinstance(e, Binary) and e.op == "floordiv":
        # No less than the quotient, and no more than by one.
        return binary("div", _rough(e.a), _rough(e.b))
    if isinstance(e, Unary) and e.op == "neg":
        return binary("sub", const(0.0, "float64"), _rough(e.a))
    return cast(e, "float64")
