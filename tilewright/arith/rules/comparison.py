"""Comparisons of integers: decided by bounds, else written with positive terms on both sides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.bounds import bounds, exact_linear
from tilewright.arith.interval import is_index
from tilewright.arith.linear import Linear, constant_of
from tilewright.arith.linearize import linear
from tilewright.arith.nonnegative import CHEAP, is_nonnegative
from tilewright.arith.order import order_key
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Const, Expr, broadcast, const

Rule = Callable[[Any, Ranges], Expr | None]


def _answer(e: Binary, value: bool) -> Expr:
    return broadcast(const(value), e.dtype.lanes)


def _of_itself(e: Binary, _r: Ranges) -> Expr | None:
    """x < x is false, and x <= x true unless x may be NaN"""
    if e.a is not e.b:
        return None
    if e.op in ("lt", "gt"):
        return _answer(e, False)
    return None if e.a.dtype.is_float else _answer(e, e.op in ("eq", "le", "ge"))


def _decided(e: Binary, ranges: Ranges) -> Expr | None:
    if not e.a.dtype.is_integer:
        return None
    rule = _DECIDE[e.op]
    answer = rule(_Difference(e.a, e.b, ranges))
    return None if answer is None else _answer(e, answer)


class _Difference:
    """What is known about a - b."""

    def __init__(self, a: Expr, b: Expr, ranges: Ranges) -> None:
        self.ranges = ranges
        self.low_gap = _gap(bounds(a, ranges).low, bounds(b, ranges).high)
        self.high_gap = _gap(bounds(a, ranges).high, bounds(b, ranges).low)
        self.exact = None if a.dtype.is_vector else self._exact(a, b)

    def _exact(self, a: Expr, b: Expr) -> Linear | None:
        x, y = exact_linear(a, self.ranges), exact_linear(b, self.ranges)
        return None if x is None or y is None else x.minus(y)

    def at_least(self, value: int) -> bool:
        if self.low_gap is not None and self.low_gap >= value:
            return True
        total = self.exact
        return total is not None and is_nonnegative(total.shifted(-value), self.ranges, CHEAP)

    def at_most(self, value: int) -> bool:
        if self.high_gap is not None and self.high_gap <= value:
            return True
        total = self.exact
        return total is not None and is_nonnegative(
            total.scaled(-1).shifted(value), self.ranges, CHEAP
        )


def _gap(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _less(d: _Difference) -> bool | None:
    return True if d.at_most(-1) else False if d.at_least(0) else None


def _less_equal(d: _Difference) -> bool | None:
    return True if d.at_most(0) else False if d.at_least(1) else None


def _equal(d: _Difference) -> bool | None:
    if d.at_most(-1) or d.at_least(1):
        return False
    return True if d.at_most(0) and d.at_least(0) else None


def _negated(rule: Callable[[_Difference], bool | None]) -> Callable[[_Difference], bool | None]:
    def decide(d: _Difference) -> bool | None:
        answer = rule(d)
        return None if answer is None else not answer

    return decide


_DECIDE: dict[str, Callable[[_Difference], bool | None]] = {
    "lt": _less,
    "le": _less_equal,
    "gt": _negated(_less_equal),
    "ge": _negated(_less),
    "eq": _equal,
    "ne": _negated(_equal),
}


# ---- writing ------------------------------------------------------------------------------------


def _ordered(e: Binary, ranges: Ranges) -> Expr | None:
    """a <= b as p < n + c: terms positive on both sides, their common factor divided out"""
    if not is_index(e.a.dtype) or e.a.dtype.is_vector:
        return None
    small, large = (e.a, e.b) if e.op in ("lt", "le") else (e.b, e.a)
    strict = 0 if e.op in ("lt", "gt") else 1
    # small < large + strict, as: terms < limit
    terms = linear(small).minus(linear(large))
    limit = strict - terms.constant
    g = math.gcd(*terms.terms.values())
    if g == 0:
        return const(limit > 0)
    # g*t < limit is t < ceil(limit / g)
    terms, limit = _without_rest(terms.shifted(-terms.constant).divided(g), -(-limit // g), ranges)
    return _changed(e, _write_less(terms, limit))


def _without_rest(terms: Linear, limit: int, ranges: Ranges) -> tuple[Linear, int]:
    """g*t + r < limit is t < limit // g (or one more), where 0 <= r < g makes no difference"""
    for g in sorted({abs(k) for k in terms.terms.values()} - {1}):
        rest, whole = terms.split(lambda _, k, g=g: k % g != 0)
        if rest.is_constant or whole.is_constant:
            continue
        low, high = bounds(rest.expr(), ranges)
        if low is None or high is None or low < 0 or high >= g:
            continue
        quotient, left = divmod(limit, g)
        if left <= low or high < left:
            return whole.divided(g), quotient + (high < left)
    return terms, limit


def _of_quotient(e: Binary, _r: Ranges) -> Expr | None:
    """x // c < k is x < k*c, and x // c >= k is x >= k*c, for c > 0"""
    quotient, limit = e.a, e.b
    if not is_index(quotient.dtype) or quotient.dtype.is_vector or not isinstance(limit, Const):
        return None
    if not isinstance(quotient, Binary) or quotient.op != "floordiv":
        return None
    if not isinstance(quotient.b, Const) or quotient.b.value <= 0:
        return None
    strict = e.op in ("lt", "ge")
    factor = int(limit.value) + (0 if strict else 1)
    op = "lt" if e.op in ("lt", "le") else "ge"
    return Binary(op, quotient.a, const(factor * int(quotient.b.value)))


def _write_less(terms: Linear, limit: int) -> Expr:
    """terms < limit"""
    left, right = terms.split(lambda _, k: k > 0)
    right = right.scaled(-1)
    if left.is_constant:
        return Binary("ge", right.expr(), constant_of(1 - limit, terms.dtype))
    if right.is_constant:
        return Binary("lt", left.expr(), constant_of(limit, terms.dtype))
    if limit == 1:
        return Binary("le", left.expr(), right.expr())
    if limit > 0:
        return Binary("lt", left.expr(), right.shifted(limit).expr())
    return Binary("lt", left.shifted(-limit).expr(), right.expr())


def _equated(e: Binary, _r: Ranges) -> Expr | None:
    """a == b as p == n + c; moving terms is exact even where the type wraps around"""
    if not e.a.dtype.is_integer or e.a.dtype.is_vector:
        return None
    difference = linear(e.a).minus(linear(e.b)).wrapped()
    if difference.is_constant:
        return const((difference.constant == 0) == (e.op == "eq"))
    if is_index(e.a.dtype):
        g = math.gcd(*difference.terms.values())
        if difference.constant % g:
            return const(e.op == "ne")
        difference = difference.divided(g)
    return _changed(e, _write_equal(e.op, _positive_first(difference)))


def _positive_first(total: Linear) -> Linear:
    """Of a sum and its negation, the one whose first term is positive."""
    first = min(total.terms, key=order_key)
    return total if total.terms[first] > 0 else total.scaled(-1).wrapped()


def _write_equal(op: str, difference: Linear) -> Expr:
    left, right = difference.split(lambda _, k: k > 0)
    right = right.scaled(-1)
    if left.is_constant:
        left, right = right.shifted(-right.constant), left.shifted(-right.constant)
    elif right.constant < 0 and not right.is_constant:
        left, right = left.shifted(-right.constant), right.shifted(-right.constant)
    return Binary(op, left.expr(), right.expr())


def _changed(before: Expr, after: Expr) -> Expr | None:
    return None if after is before else after


_ORDER: tuple[Rule, ...] = (_of_itself, _decided, _of_quotient, _ordered)
_EQUALITY: tuple[Rule, ...] = (_of_itself, _decided, _equated)
RULES: dict[object, tuple[Rule, ...]] = {
    **dict.fromkeys(("lt", "le", "gt", "ge"), _ORDER),
    **dict.fromkeys(("eq", "ne"), _EQUALITY),
}
