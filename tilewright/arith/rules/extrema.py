"""Minima and maxima."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.bounds import bounds, exact_linear, is_exact
from tilewright.arith.interval import is_index
from tilewright.arith.linear import Linear, number
from tilewright.arith.nonnegative import CHEAP, is_nonnegative
from tilewright.arith.order import order_key
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Expr

Rule = Callable[[Any, Ranges], Expr | None]


def _decided(e: Binary, ranges: Ranges) -> Expr | None:
    """min(a, b) = a where a <= b"""
    if not e.dtype.is_integer:
        return None
    small, large = (e.a, e.b) if e.op == "min" else (e.b, e.a)
    if never_above(e.a, e.b, ranges):
        return small
    return large if never_above(e.b, e.a, ranges) else None


def never_above(a: Expr, b: Expr, ranges: Ranges) -> bool:
    """Is a <= b, by bounds or a short proof?"""
    # Every part of a long minimum is compared with all others, and again for each longer one.
    known = ranges.memo("never above")
    found = known.get((a, b))
    if found is None:
        found = known[a, b] = _never_above(a, b, ranges)
    return found


def _never_above(a: Expr, b: Expr, ranges: Ranges) -> bool:
    high, low = bounds(a, ranges).high, bounds(b, ranges).low
    if high is not None and low is not None and high <= low:
        return True
    if a.dtype.is_vector:
        return False
    x, y = exact_linear(a, ranges), exact_linear(b, ranges)
    return x is not None and y is not None and is_nonnegative(y.minus(x), ranges, CHEAP)


def _common_part(e: Binary, ranges: Ranges) -> Expr | None:
    """min(x + z, y + z) = min(x, y) + z"""
    if not e.dtype.is_integer or e.dtype.is_vector:
        return None
    a, b = exact_linear(e.a, ranges), exact_linear(e.b, ranges)
    if a is None or b is None:
        return None
    shared = {t: c for t, c in a.terms.items() if b.terms.get(t) == c}
    constant = a.constant if a.constant == b.constant else 0
    if not shared and not constant:
        return None
    common = Linear(shared, constant, e.dtype)
    x, y = a.minus(common), b.minus(common)
    if not is_exact(x, ranges) or not is_exact(y, ranges):
        return None
    return Linear.of_atom(Binary(e.op, x.expr(), y.expr())).plus(common).expr()


def _common_factor(e: Binary, _r: Ranges) -> Expr | None:
    """min(c*x, c*y) = c * min(x, y) for c > 0"""
    if not is_index(e.dtype) or e.dtype.is_vector:
        return None
    a, b = exact_linear(e.a, _r), exact_linear(e.b, _r)
    if a is None or b is None:
        return None
    g = math.gcd(*a.terms.values(), *b.terms.values(), a.constant, b.constant)
    if g <= 1:
        return None
    inner = Binary(e.op, a.divided(g).expr(), b.divided(g).expr())
    return Linear.of_atom(inner).scaled(g).expr()


def _flattened(e: Binary, ranges: Ranges) -> Expr | None:
    """min(a, min(b, c)) in canonical order, without parts that others make superfluous"""
    if not e.dtype.is_integer:
        return None
    parts = _distinct(e)
    kept = [p for i, p in enumerate(parts) if not _is_decided(e.op, i, parts, ranges)]
    result = kept[0]
    for part in kept[1:]:
        result = Binary(e.op, result, part)
    return None if result is e else result


def _distinct(e: Binary) -> list[Expr]:
    found: dict[Expr, None] = {}
    pending: list[Expr] = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op == e.op:
            pending += [part.b, part.a]
        else:
            found.setdefault(part)
    return sorted(found, key=lambda p: (number(p) is not None, order_key(p)))


def _is_decided(op: str, i: int, parts: list[Expr], ranges: Ranges) -> bool:
    """Is part `i` never the extreme one, because of another part that stays?"""
    if len(parts) == 2:
        return False
    for j, other in enumerate(parts):
        if j == i:
            continue
        below, above = (other, parts[i]) if op == "min" else (parts[i], other)
        # Two equal parts must not eliminate each other.
        if never_above(below, above, ranges) and (j < i or not never_above(above, below, ranges)):
            return True
    return False


def _same(e: Binary, _r: Ranges) -> Expr | None:
    return e.a if e.a is e.b else None


def _truths(e: Binary, _r: Ranges) -> Expr | None:
    if not e.dtype.is_bool:
        return None
    return Binary("and" if e.op == "min" else "or", e.a, e.b)


_EXTREMA: tuple[Rule, ...] = (
    _same,  # min(x, x) = x
    _truths,
    _decided,
    _flattened,
    _common_part,
    _common_factor,
)
RULES: dict[object, tuple[Rule, ...]] = {"min": _EXTREMA, "max": _EXTREMA}
