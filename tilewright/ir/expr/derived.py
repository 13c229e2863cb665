"""Composed expressions: selects, extremes, conjunctions."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr.nodes import Binary, Const, Expr, Select, as_expr, binary, match_types
from tilewright.ir.type_rules import Number
from tilewright.support.dtype import bool_


def select(condition: Any, a: Any, b: Any) -> Expr:
    """`a` where `condition` holds, else `b`; the other side is not evaluated."""
    a, b = match_types("select", a, b)
    return Select(as_expr(condition), a, b)


def minimum(a: Any, b: Any) -> Expr:
    return binary("min", a, b)


def maximum(a: Any, b: Any) -> Expr:
    return binary("max", a, b)


def all_of(*conditions: Any) -> Expr:
    """The conjunction of all; true for none."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        result = condition if result is None else Binary("and", result, condition)
    return result if result is not None else Const(True, bool_)


def any_of(*conditions: Any) -> Expr:
    """The disjunction of all; false for none."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        result = condition if result is None else Binary("or", result, condition)
    return result if result is not None else Const(False, bool_)


def is_const(a: Expr, value: Number | None = None) -> bool:
    """Is `a` a constant (of this value)?"""
    return isinstance(a, Const) and (value is None or a.value == value)
