"""Intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.bounds import bounds
from tilewright.arith.ranges import Ranges
from tilewright.ir import Call, Expr, Unary

Rule = Callable[[Any, Ranges], Expr | None]


def _abs(e: Call, ranges: Ranges) -> Expr | None:
    if e.name != "abs" or not e.dtype.is_integer:
        return None
    limits = bounds(e.args[0], ranges)
    if limits.low is not None and limits.low >= 0:
        return e.args[0]
    return Unary("neg", e.args[0]) if limits.high is not None and limits.high <= 0 else None


RULES: dict[object, tuple[Rule, ...]] = {Call: (_abs,)}  # abs(x) = x for x >= 0
