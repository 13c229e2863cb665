"""Sizes in bytes that saturate instead of wrapping around."""

from __future__ import annotations

from typing import Final

from tilewright.arith import rough
from tilewright.ir import Const, Expr, const, maximum, select

#: More bytes than any memory has.
TOO_MANY: Final = 1 << 60


def saturated(size: Expr) -> Expr:
    """A size in bytes; `TOO_MANY` where it is larger, even if its computation overflows."""
    if isinstance(size, Const):
        return const(min(int(size.value), TOO_MANY))
    limit = const(float(TOO_MANY), "float64")
    return select(rough(size) < limit, maximum(size, 0), const(TOO_MANY))
