"""Proofs: True means always, False means "not shown"."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.arith.bounds import exact_linear
from tilewright.arith.divisibility import divisor
from tilewright.arith.linear import Linear
from tilewright.arith.nonnegative import THOROUGH, is_nonnegative
from tilewright.arith.ranges import Ranges, knowing_nothing
from tilewright.arith.simplify import simplify
from tilewright.ir import Binary, Const, Expr, Unary


def prove(condition: Expr, ranges: Ranges) -> bool:
    """True only if `condition` holds for all values that `ranges` allows."""
    condition = simplify(condition, ranges)
    if isinstance(condition, Const):
        return bool(condition.value)
    if condition in ranges.conditions:
        return True
    if isinstance(condition, Binary) and condition.op in ("and", "or"):
        return _prove_logic(condition, ranges)
    if not isinstance(condition, Binary) or condition.a.dtype.is_vector:
        return False
    rule = _COMPARE.get(condition.op)
    return rule is not None and _prove_comparison(condition, rule, ranges)


def prove_equal(a: Expr, b: Expr, ranges: Ranges | None = None) -> bool:
    """True only if both always have the same value."""
    ranges = knowing_nothing() if ranges is None else ranges
    if a is b:
        return True
    if a.dtype is not b.dtype:
        return False
    x, y = simplify(a, ranges), simplify(b, ranges)
    if x is y:
        return True
    return a.dtype.is_integer and prove(Binary("eq", x, y), ranges)


def _prove_logic(condition: Binary, ranges: Ranges) -> bool:
    if condition.op == "and":
        return prove(condition.a, ranges) and prove(condition.b, ranges)
    # One side may be assumed false while the other is proved.
    return prove(condition.b, ranges.assuming(Unary("not", condition.a))) or prove(
        condition.a, ranges.assuming(Unary("not", condition.b))
    )


def _prove_comparison(
    condition: Binary, rule: Callable[[Linear, Ranges], bool], ranges: Ranges
) -> bool:
    if not condition.a.dtype.is_integer:
        return False
    a, b = exact_linear(condition.a, ranges), exact_linear(condition.b, ranges)
    return a is not None and b is not None and rule(b.minus(a), ranges)


def _is_zero(difference: Linear, ranges: Ranges) -> bool:
    return is_nonnegative(difference, ranges) and is_nonnegative(difference.scaled(-1), ranges)


def _is_not_zero(difference: Linear, ranges: Ranges) -> bool:
    if _misses_zero(difference, ranges):
        return True
    return any(
        is_nonnegative(difference.scaled(sign).shifted(-1), ranges, THOROUGH) for sign in (1, -1)
    )


def _misses_zero(difference: Linear, ranges: Ranges) -> bool:
    """Whether the variable part has steps that never give the constant: 4*i + 2 != 0."""
    step = math.gcd(*(c * divisor(a, ranges) for a, c in difference.terms.items()))
    return difference.constant % step != 0 if step else difference.constant != 0


#: The conditions on b - a for `a op b`.
_COMPARE: dict[str, Callable[[Linear, Ranges], bool]] = {
    "lt": lambda d, r: is_nonnegative(d.shifted(-1), r),
    "le": lambda d, r: is_nonnegative(d, r),
    "gt": lambda d, r: is_nonnegative(d.scaled(-1).shifted(-1), r),
    "ge": lambda d, r: is_nonnegative(d.scaled(-1), r),
    "eq": _is_zero,
    "ne": _is_not_zero,
}
