"""Floats: only rules that keep NaN, infinities and the sign of zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Broadcast, Const, Expr, Unary

Rule = Callable[[Any, Ranges], Expr | None]


def _number(e: Expr) -> float | None:
    """The value of a float constant, or of one in every lane."""
    if isinstance(e, Broadcast):
        e = e.a
    return float(e.value) if isinstance(e, Const) and e.dtype.is_float else None


def _is(e: Expr, value: float) -> bool:
    found = _number(e)
    return found is not None and found == value and _sign(found) == _sign(value)


def _sign(value: float) -> float:
    return math.copysign(1, value)


def _opposite(e: Expr) -> Expr | None:
    """x of -x"""
    return e.a if isinstance(e, Unary) and e.op == "neg" and e.dtype.is_float else None


def _sub_of_negated(e: Binary, _r: Ranges) -> Expr | None:
    x = _opposite(e.b)
    return None if x is None else Binary("add", e.a, x)


def _add_of_negated(e: Binary, _r: Ranges) -> Expr | None:
    x = _opposite(e.b)
    return None if x is None else Binary("sub", e.a, x)


def _constant_right(e: Binary, _r: Ranges) -> Expr | None:
    if not e.dtype.is_float or _number(e.a) is None or _number(e.b) is not None:
        return None
    return Binary(e.op, e.b, e.a)


RULES: dict[object, tuple[Rule, ...]] = {
    "add": (
        _constant_right,  # c + x = x + c
        lambda e, _: e.a if _is(e.b, -0.0) else None,  # x + -0.0 = x
        _add_of_negated,  # x + -y = x - y
    ),
    "sub": (
        lambda e, _: e.a if _is(e.b, 0.0) else None,  # x - 0.0 = x
        lambda e, _: Unary("neg", e.b) if _is(e.a, -0.0) else None,  # -0.0 - x = -x
        _sub_of_negated,  # x - -y = x + y
    ),
    "mul": (
        _constant_right,  # c * x = x * c
        lambda e, _: e.a if _is(e.b, 1.0) else None,  # x * 1 = x
        lambda e, _: Unary("neg", e.a) if _is(e.b, -1.0) else None,  # x * -1 = -x
    ),
    "div": (
        lambda e, _: e.a if _is(e.b, 1.0) else None,  # x / 1 = x
        lambda e, _: Unary("neg", e.a) if _is(e.b, -1.0) else None,  # x / -1 = -x
    ),
    "neg": (lambda e, _: _opposite(e.a),),  # --x = x
}
