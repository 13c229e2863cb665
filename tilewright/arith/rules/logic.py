"""Truth values and selects. `and`, `or` and `select` are lazy: their order is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Broadcast, Const, Expr, Select, Unary, broadcast, const

Rule = Callable[[Any, Ranges], Expr | None]

_OPPOSITES = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_DUALS = {"and": "or", "or": "and"}


def _truth(e: Expr) -> bool | None:
    """The value of a truth constant, or of one in every lane."""
    if isinstance(e, Broadcast):
        e = e.a
    return bool(e.value) if isinstance(e, Const) and e.dtype.is_bool else None


def _constant(e: Expr, value: bool) -> Expr:
    return broadcast(const(value), e.dtype.lanes)


def negation(e: Expr) -> Expr:
    """`not e`, pushed into its operands where that is exact."""
    pushed = _pushed(e)
    return Unary("not", e) if pushed is None else pushed


def _pushed(e: Expr) -> Expr | None:
    if isinstance(e, Unary) and e.op == "not":
        return e.a
    if not isinstance(e, Binary):
        return None
    # With NaN, "not less" is not "greater or equal"; "not equal" is exact.
    if e.op in ("eq", "ne") or (e.op in _OPPOSITES and not e.a.dtype.is_float):
        return Binary(_OPPOSITES[e.op], e.a, e.b)
    if e.op in _DUALS:
        return Binary(_DUALS[e.op], Unary("not", e.a), Unary("not", e.b))
    return None


def _known(e: Expr, ranges: Ranges) -> Expr | None:
    if not ranges.conditions or not e.dtype.is_bool:
        return None
    if e in ranges.conditions:
        return _constant(e, True)
    return _constant(e, False) if negation(e) in ranges.conditions else None


def _repeated(e: Binary, _r: Ranges) -> Expr | None:
    """(… a …) and a = (… a …): repeated conditions of a chain are dropped."""
    left = set(_chain(e.a, e.op))
    right = _chain(e.b, e.op)
    kept = [p for p in dict.fromkeys(right) if p not in left]
    if any(negation(p) in left for p in kept):
        return _constant(e, e.op == "or")
    if len(kept) == len(right) and not _is_chain(e.b, e.op):
        return None
    result = e.a
    for part in kept:
        result = Binary(e.op, result, part)
    return result


def _is_chain(e: Expr, op: str) -> bool:
    return isinstance(e, Binary) and e.op == op


def _chain(e: Expr, op: str) -> list[Expr]:
    parts: list[Expr] = []
    pending = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op == op:
            pending += [part.b, part.a]
        else:
            parts.append(part)
    return parts


def _select_by_constant(e: Select, _r: Ranges) -> Expr | None:
    truth = _truth(e.condition)
    return None if truth is None else e.a if truth else e.b


def _select_of_truths(e: Select, _r: Ranges) -> Expr | None:
    a, b = _truth(e.a), _truth(e.b)
    if not e.dtype.is_bool or a is None or b is None or a == b:
        return None
    condition = broadcast(e.condition, e.dtype.lanes)
    return condition if a else Unary("not", condition)


def _select_negated(e: Select, _r: Ranges) -> Expr | None:
    condition = e.condition
    if isinstance(condition, Unary) and condition.op == "not":
        return Select(condition.a, e.b, e.a)
    return None


def _select_nested(e: Select, _r: Ranges) -> Expr | None:
    a = e.a.a if isinstance(e.a, Select) and e.a.condition is e.condition else e.a
    b = e.b.b if isinstance(e.b, Select) and e.b.condition is e.condition else e.b
    return None if a is e.a and b is e.b else Select(e.condition, a, b)


def _compare_truths(e: Binary, _r: Ranges) -> Expr | None:
    if not e.a.dtype.is_bool:
        return None
    truth = _truth(e.b)
    if truth is None:
        return None if _truth(e.a) is None else Binary(e.op, e.b, e.a)
    return e.a if truth == (e.op == "eq") else Unary("not", e.a)


RULES: dict[object, tuple[Rule, ...]] = {
    "and": (
        lambda e, _: (e.b if _truth(e.a) else e.a) if _truth(e.a) is not None else None,  # c and x
        lambda e, _: (e.a if _truth(e.b) else e.b) if _truth(e.b) is not None else None,  # x and c
        _repeated,  # x and x = x
        _known,
    ),
    "or": (
        lambda e, _: (e.a if _truth(e.a) else e.b) if _truth(e.a) is not None else None,  # c or x
        lambda e, _: (e.b if _truth(e.b) else e.a) if _truth(e.b) is not None else None,  # x or c
        _repeated,  # x or x = x
        _known,
    ),
    "not": (lambda e, _: _pushed(e.a), _known),  # not a < b = a >= b, not not x = x
    "eq": (_compare_truths,),  # x == True = x
    "ne": (_compare_truths,),  # x != True = not x
    **dict.fromkeys(("lt", "le", "gt", "ge"), (_known,)),
    Select: (
        _select_by_constant,  # select(True, a, b) = a
        lambda e, _: e.a if e.a is e.b else None,  # select(c, a, a) = a
        _select_of_truths,  # select(c, True, False) = c
        _select_negated,  # select(not c, a, b) = select(c, b, a)
        _select_nested,  # select(c, select(c, a, _), b) = select(c, a, b)
        _known,
    ),
}
