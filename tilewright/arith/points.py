"""Points that satisfy all that a context knows: what is false at one of them needs no proof.

Most attempted proofs are of statements that are false, and a search that finds nothing takes the
longest. A point gives every variable a value within its bounds, such that no known fact is
violated. If a sum is negative at a point, no search can prove it non-negative, since searches rely
on the same bounds and facts: so nothing is refuted here that a search would have proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from operator import add, mul, sub
from typing import Any, Final

from tilewright.arith.interval import Interval, is_index
from tilewright.arith.linear import Linear
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Cast, Const, Expr, Unary, Var

#: The values of an expression at all points, in their order.
_Values = tuple[int, ...]
_Choice = Callable[[int, int], int]
_Operation = Callable[[int, int], int]

#: Ways to choose a value between bounds.
_CHOICES: Final[tuple[_Choice, ...]] = (
    lambda low, _high: low,
    lambda _low, high: high,
    lambda low, high: (low + high) // 2,
    lambda low, high: min(low + 1, high),
    lambda low, high: max(high - 1, low),
    lambda low, high: low + (high - low) // 3,
)
#: The ways by which each point chooses, in turn for its variables: the same for all, or some
#: variables against others.
_WAYS: Final = (
    (0,),
    (1,),
    (1, 0),
    (0, 1),
    (1, 1, 0, 0),
    (0, 0, 1, 1),
    (2, 3),
    (4, 5, 1),
    (3, 1, 0),
    (5, 0, 1, 2),
    (1,),
    (0,),
    (4,),
    (2,),
)
#: Least values of unlimited sizes at the points, different from each other.
_SIZES: Final = (1, 7, 64, 13, 33, 1000, 2, 50, 5, 96)


class Points:
    """Points of a context, and the values of expressions there."""

    def __init__(self, ranges: Ranges) -> None:
        # Not the context itself, which holds its points: that would be a cycle.
        self._bounds, self._limits = ranges.variables, ranges.limits
        self._count = len(_WAYS)
        self._known: dict[Expr, _Values | None] = {}
        for var in ranges.variables:
            self._choose(var)
        self._keep(ranges.facts)

    def refute(self, total: Linear) -> bool:
        """Whether a sum is negative at a point."""
        values = self._sum(total) if self._count else None
        return values is not None and min(values) < 0

    def _keep(self, facts: Sequence[Linear]) -> None:
        """Drop the points that violate something known; all of them, where that is undecided."""
        pairs = [pair for var in self._bounds for pair in self._ordered(var)]
        pairs += [((0,) * self._count, self._sum(fact)) for fact in facts]
        possible = [True] * self._count
        for small, large in pairs:
            if small is None or large is None:
                self._count = 0
                return
            possible = [p and a <= b for p, a, b in zip(possible, small, large, strict=True)]
        for atom, (low, high) in self._limits.items():
            values = self._of(atom)
            if values is not None and low is not None:
                possible = [p and v >= low for p, v in zip(possible, values, strict=True)]
            if values is not None and high is not None:
                possible = [p and v <= high for p, v in zip(possible, values, strict=True)]
        self._count = sum(possible)
        for expr, values in self._known.items():
            self._known[expr] = None if values is None else tuple(compress(values, possible))

    def _ordered(self, var: Var) -> Iterator[tuple[_Values | None, _Values | None]]:
        """Pairs of which the first is not greater, by the bounds of a variable."""
        known = self._bounds[var]
        if known.low is not None:
            yield self._of(known.low), self._of(var)
        if known.high is not None:
            yield self._of(var), self._of(known.high)

    def _sum(self, total: Linear) -> _Values | None:
        values = [total.constant] * self._count
        for atom, coefficient in total.terms.items():
            of_atom = self._of(atom)
            if of_atom is None:
                return None
            values = [v + coefficient * a for v, a in zip(values, of_atom, strict=True)]
        return tuple(values)

    def _of(self, expr: Expr) -> _Values | None:
        known, pending = self._known, [expr]
        while pending:
            node = pending[-1]
            missing = [o for o in node.operands if o not in known] if type(node) in _RULES else ()
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if node not in known:
                known[node] = self._evaluated(node)
        return known[expr]

    def _evaluated(self, node: Expr) -> _Values | None:
        if not node.dtype.is_integer or node.dtype.is_vector:
            return None
        if isinstance(node, Var):
            return self._between(node, None, None)
        rule = _RULES.get(type(node))
        if rule is None:
            return None
        values = rule(node, [self._known[o] for o in node.operands], self._count)
        if values is None or is_index(node.dtype):
            return values
        # Values that the type wraps around are unknown.
        limits = Interval.of_type(node.dtype)
        return values if all(Interval(v, v).within(limits) for v in values) else None

    def _choose(self, var: Var) -> None:
        """Choose values of a variable between its bounds, as far as these use earlier ones."""
        low, high = (None if e is None else self._of(e) for e in self._bounds[var][:2])
        if var not in self._known and not var.dtype.is_vector:
            self._known[var] = self._between(var, low, high)

    def _between(self, var: Var, low: _Values | None, high: _Values | None) -> _Values:
        limits, place = self._limits.get(var) or Interval.of_type(var.dtype), len(self._known)
        low, high = self._end(low, limits.low), self._end(high, limits.high)
        if low is None:
            low = (0,) * self._count if high is None else tuple([min(0, n) for n in high])
        if high is None:
            low = high = tuple([max(n, self._size(place, k)) for k, n in enumerate(low)])
        ways = [_CHOICES[way[place % len(way)]] for way in _WAYS[: self._count]]
        return tuple([way(a, b) for way, a, b in zip(ways, low, high, strict=True)])

    def _size(self, place: int, point: int) -> int:
        """1 for all sizes at the first points; different from each other at the rest."""
        return 1 if point < 2 else _SIZES[(3 * place + point) % len(_SIZES)]

    def _end(self, end: _Values | None, limit: int | None) -> _Values | None:
        return end if end is not None or limit is None else (limit,) * self._count


def refuted(total: Linear, ranges: Ranges) -> bool:
    """Whether a sum is negative at a point that satisfies all that is known."""
    memo = ranges.memo("points")
    points = memo.get(None)
    if points is None:
        points = memo[None] = Points(ranges)
    return points.refute(total)


# ---- one row per node ---------------------------------------------------------------------------


def _binary(node: Binary, operands: _Operands, _count: int) -> _Values | None:
    a, b = operands
    rule = _OPERATIONS.get(node.op)
    if rule is None or a is None or b is None:
        return None
    if node.op in _DIVISIONS and any(divisor <= 0 for divisor in b):
        return None
    return tuple(map(rule, a, b))


def _unary(node: Unary, operands: _Operands, _count: int) -> _Values | None:
    (a,) = operands
    return None if a is None or node.op != "neg" else tuple([-value for value in a])


def _cast(_node: Cast, operands: _Operands, _count: int) -> _Values | None:
    return operands[0]


def _const(node: Const, _operands: _Operands, count: int) -> _Values:
    return (int(node.value),) * count


_Operands = Sequence[_Values | None]
_DIVISIONS: Final = ("floordiv", "floormod")
_OPERATIONS: Final[dict[str, _Operation]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "floordiv": int.__floordiv__,
    "floormod": int.__mod__,
    "min": min,
    "max": max,
}
_RULES: Final[dict[type[Expr], Callable[[Any, _Operands, int], _Values | None]]] = {
    Binary: _binary,
    Unary: _unary,
    Cast: _cast,
    Const: _const,
}
