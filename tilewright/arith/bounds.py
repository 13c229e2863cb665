"""Constant bounds of expressions, by interval arithmetic on their sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.interval import EVERYTHING, TRUTH, Interval, is_index, wrapped
from tilewright.arith.linear import Linear, factors, number
from tilewright.arith.linearize import is_product, is_sum, linear
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Broadcast, Call, Cast, Const, Expr, Load, Ramp, Select, Unary, Var


def bounds(expr: Expr, ranges: Ranges) -> Interval:
    """Constants that bound `expr` in every lane; unbounded for floats."""
    known = ranges.intervals
    found = known.get(expr)
    if found is not None:
        return found
    outer = ranges.asked_about(expr.variables)
    if outer is not ranges:
        found = known[expr] = bounds(expr, outer)
        return found
    pending = [expr]
    while pending:
        node = pending[-1]
        if node in known:
            pending.pop()
            continue
        missing = [o for o in _needed(node) if o not in known]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        known[node] = _bound(node, ranges)
    return known[expr]


def linear_bounds(total: Linear, ranges: Ranges) -> Interval:
    """The interval of the exact value of a sum."""
    low: int | None = total.constant
    high: int | None = total.constant
    for atom, coefficient in total.terms.items():
        least, most = _atom_bounds(atom, ranges)
        if coefficient < 0:
            least, most = most, least
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or most is None else high + coefficient * most
    return Interval(low, high)


def exact_linear(expr: Expr, ranges: Ranges) -> Linear | None:
    """`expr` as a sum with the same exact value, if its type does not make it wrap around."""
    total = linear(expr)
    return total if is_exact(total, ranges) else None


def is_exact(total: Linear, ranges: Ranges) -> bool:
    """Is the exact value of the sum its value in its type, without wrapping around?"""
    if is_index(total.dtype):
        return True
    return linear_bounds(total, ranges).within(Interval.of_type(total.dtype))


def _atom_bounds(atom: Expr, ranges: Ranges) -> Interval:
    if not (isinstance(atom, Binary) and atom.op == "mul"):
        return bounds(atom, ranges)
    result = Interval(1, 1)
    for factor in factors(atom):
        result = result.times(bounds(factor, ranges))
    return result.intersect(ranges.limits.get(atom, EVERYTHING))


def _needed(node: Expr) -> tuple[Expr, ...] | list[Expr]:
    """The operands that must be bounded first."""
    if not node.dtype.is_integer:
        return ()
    if is_sum(node) or is_product(node):
        return [f for atom in linear(node).terms for f in factors(atom)]
    return () if isinstance(node, Load) else tuple(o for o in node.operands if o.dtype.is_integer)


def _bound(node: Expr, ranges: Ranges) -> Interval:
    if not node.dtype.is_integer:
        return Interval.of_type(node.dtype)
    if is_sum(node) or is_product(node):
        own = wrapped(linear_bounds(linear(node), ranges), node.dtype)
    else:
        own = _NODES[type(node)](node, ranges)
    return own.intersect(ranges.limit(node))


# ---- one row per node ---------------------------------------------------------------------------


def _binary(node: Binary, ranges: Ranges) -> Interval:
    rule = _BINARY.get(node.op)
    if rule is None or not node.a.dtype.is_integer:
        return Interval.of_type(node.dtype)
    a, b = ranges.intervals[node.a], ranges.intervals[node.b]
    return wrapped(rule(a, b), node.dtype)


def _truncdiv(a: Interval, b: Interval) -> Interval:
    if _is_positive(b) and a.low is not None and a.low >= 0:
        return a.floordiv(b)
    magnitude = _magnitude(a)
    return EVERYTHING if magnitude is None else Interval(-magnitude, magnitude)


def _truncmod(a: Interval, b: Interval) -> Interval:
    limit = _magnitude(b)
    whole = EVERYTHING if limit is None else Interval(-max(limit - 1, 0), max(limit - 1, 0))
    sign = Interval(
        0 if a.low is not None and a.low >= 0 else None,
        0 if a.high is not None and a.high <= 0 else None,
    )
    return whole.intersect(sign)


def _bitand(a: Interval, b: Interval) -> Interval:
    highs = [i.high for i in (a, b) if i.low is not None and i.low >= 0 and i.high is not None]
    return Interval(0, min(highs)) if highs else EVERYTHING


def _shr(a: Interval, b: Interval) -> Interval:
    if b.low is None or b.high is None or b.low < 0 or b.high > 63:
        return EVERYTHING
    return a.floordiv(Interval(1 << b.low, 1 << b.high))


def _is_positive(i: Interval) -> bool:
    return i.low is not None and i.low > 0


def _magnitude(i: Interval) -> int | None:
    return None if i.low is None or i.high is None else max(abs(i.low), abs(i.high))


_BINARY: dict[str, Callable[[Interval, Interval], Interval]] = {
    "floordiv": Interval.floordiv,
    "floormod": Interval.floormod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": Interval.lesser,
    "max": Interval.greater,
    "bitand": _bitand,
    "shr": _shr,
}


def _cast(node: Cast, ranges: Ranges) -> Interval:
    source = node.a.dtype
    if source.is_bool:
        return TRUTH
    if not source.is_integer:
        return Interval.of_type(node.dtype)
    return wrapped(ranges.intervals[node.a].intersect(Interval.of_type(source)), node.dtype)


def _call(node: Call, ranges: Ranges) -> Interval:
    if node.name in ("popcount", "clz", "ctz"):
        return Interval(0, node.dtype.bits)
    if node.name == "abs":
        a = ranges.intervals[node.args[0]]
        return wrapped((-a).union(a).intersect(Interval(0, None)), node.dtype)
    return Interval.of_type(node.dtype)


def _ramp(node: Ramp, ranges: Ranges) -> Interval:
    base, stride = ranges.intervals[node.base], ranges.intervals[node.stride]
    span = stride.times(Interval(0, node.dtype.lanes - 1))
    return wrapped(base.plus(span), node.dtype)


def _const(node: Const, _ranges: Ranges) -> Interval:
    return Interval(int(node.value), int(node.value))


def _by_type(node: Expr, _ranges: Ranges) -> Interval:
    return Interval.of_type(node.dtype)


_NODES: dict[type[Expr], Callable[[Any, Ranges], Interval]] = {
    Var: lambda v, r: r.limit(v),
    Const: _const,
    Unary: _by_type,
    Binary: _binary,
    Select: lambda e, r: r.intervals[e.a].union(r.intervals[e.b]),
    Cast: _cast,
    Load: _by_type,
    Call: _call,
    Ramp: _ramp,
    Broadcast: lambda e, r: r.intervals[e.a],
}


def is_positive(expr: Expr, ranges: Ranges) -> bool:
    """Do its bounds show that it is above zero?"""
    value = number(expr)
    return value > 0 if value is not None else _is_positive(bounds(expr, ranges))
