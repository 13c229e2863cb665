"""Numbers of bytes that do not wrap around: what is too large for any memory stays too large."""

from __future__ import annotations

from typing import Final

from tilewright.arith import rough
from tilewright.ir import Const, Expr, const, maximum, select

#: No memory holds so many bytes.
TOO_MANY: Final = 1 << 60


def saturated(size: Expr) -> Expr:
    """A number of bytes; `TOO_MANY` where the true one is larger, even if it wraps around."""
    if isinstance(size, Const):
        return const(min(int(size.value), TOO_MANY))
    limit = const(float(TOO_MANY), "float64")
    return select(rough(size) < limit, maximum(size, 0), const(TOO_MANY))
