"""Conditions in a conjunction or disjunction that others in it decide.

i < 4 and i < 8     -->  i < 4
i < 4 and i >= 4    -->  False
i < 4 or i >= 2     -->  True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.bounds import exact_linear, linear_bounds
from tilewright.arith.linear import Linear
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Expr, const, loads_in

Rule = Callable[[Any, Ranges], Expr | None]

#: Longer chains are left alone: every condition is compared with every other.
_LONGEST = 12


def decided_in_chain(e: Binary, ranges: Ranges) -> Expr | None:
    """The chain without the conditions that its last one decides, or without that one."""
    left, last = _chain(e.a, e.op), _as_sum(e.b, ranges)
    if last is None or len(left) > _LONGEST:
        return None
    sums = [_as_sum(part, ranges) for part in left]
    if any(s is not None and _settles(e.op, s, last, ranges) for s in sums):
        return const(e.op == "or")
    if any(s is not None and _covers(e.op, s, last, ranges) for s in sums):
        return e.a
    # A condition that guards a load must be tested before it.
    if loads_in(e.b):
        return None
    kept = [
        part
        for part, s in zip(left, sums, strict=True)
        if s is None or not _covers(e.op, last, s, ranges)
    ]
    return None if len(kept) == len(left) else _rebuilt(e.op, [*kept, e.b])


def _covers(op: str, first: Linear, second: Linear, ranges: Ranges) -> bool:
    """Is `second` superfluous beside `first`: implied by it (`and`), or implying it (`or`)?"""
    strong, weak = (first, second) if op == "and" else (second, first)
    return _follows(weak, strong, ranges)


def _settles(op: str, first: Linear, second: Linear, ranges: Ranges) -> bool:
    """Do they contradict each other (`and`), or cover all cases (`or`)?"""
    if op == "and":
        return _follows(_opposite(second), first, ranges)
    return _follows(second, _opposite(first), ranges)


def _follows(goal: Linear, fact: Linear, ranges: Ranges) -> bool:
    """goal >= 0 whenever fact >= 0, since it is no smaller."""
    low = linear_bounds(goal.minus(fact), ranges).low
    return low is not None and low >= 0


def _opposite(fact: Linear) -> Linear:
    """not (x >= 0) is -x - 1 >= 0"""
    return fact.scaled(-1).shifted(-1)


def _as_sum(e: Expr, ranges: Ranges) -> Linear | None:
    """x such that the condition is x >= 0."""
    if not isinstance(e, Binary) or e.op not in _GAPS or not e.a.dtype.is_integer:
        return None
    if e.a.dtype.is_vector:
        return None
    a, b = exact_linear(e.a, ranges), exact_linear(e.b, ranges)
    if a is None or b is None:
        return None
    sign, gap = _GAPS[e.op]
    return b.minus(a).scaled(sign).shifted(-gap)


#: a < b is b - a - 1 >= 0
_GAPS = {"lt": (1, 1), "le": (1, 0), "gt": (-1, 1), "ge": (-1, 0)}


def _chain(e: Expr, op: str) -> list[Expr]:
    parts: list[Expr] = []
    while isinstance(e, Binary) and e.op == op:
        parts.append(e.b)
        e = e.a
    return [e, *reversed(parts)]


def _rebuilt(op: str, parts: list[Expr]) -> Expr:
    first, *rest = parts
    for part in rest:
        first = Binary(op, first, part)
    return first


RULES: dict[object, tuple[Rule, ...]] = {"and": (decided_in_chain,), "or": (decided_in_chain,)}
