"""Is a sum never negative? The search behind every proof.

A sum is relaxed step by step towards one that constant bounds decide. Each step replaces the sum by
ones that are no larger: a variable by the bound for its sign, innermost first; a quotient, a
minimum, a maximum … by a known bound; and known facts are subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilewright.arith.bounds import bounds, exact_linear, linear_bounds
from tilewright.arith.interval import Interval, is_index
from tilewright.arith.linear import Linear, factors, number, product
from tilewright.arith.points import refuted
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Cast, Expr, Select, Var

#: Most steps of a proof: during simplification, and when it is requested.
CHEAP, THOROUGH = 12, 400
_DEPTH = 14

Goals = tuple[Linear, ...]
_NO_VARIABLES: frozenset[Var] = frozenset()


def is_nonnegative(total: Linear, ranges: Ranges, effort: int = THOROUGH) -> bool:
    """True only if the exact value of the sum is never below zero."""
    known = _by_bounds(total, ranges)
    if known is not None:
        return known
    memo = ranges.memo("nonnegative")
    key = (frozenset(total.terms.items()), total.constant, effort)
    found = memo.get(key)
    if found is None:
        outer = ranges.asked_about(_NO_VARIABLES.union(*(a.variables for a in total.terms)))
        if outer is ranges:
            found = not refuted(total, ranges) and _Search(ranges, effort).holds(total, _DEPTH)
        else:
            found = is_nonnegative(total, outer, effort)
        memo[key] = found
    return found


def _by_bounds(total: Linear, ranges: Ranges) -> bool | None:
    """Whether constant bounds show that a sum is never negative, or that it always is."""
    low, high = linear_bounds(total, ranges)
    if low is not None and low >= 0:
        return True
    return False if total.is_constant or (high is not None and high < 0) else None


class _Search:
    """One proof: the steps that are left, and the sums that were tried."""

    def __init__(self, ranges: Ranges, effort: int) -> None:
        self.ranges, self.effort = ranges, effort
        self.tried: set[Any] = set()

    def holds(self, total: Linear, depth: int) -> bool:
        known = _by_bounds(total, self.ranges)
        if known is not None:
            return known
        key = (frozenset(total.terms.items()), total.constant)
        if depth == 0 or self.effort <= 0 or key in self.tried:
            return False
        self.tried.add(key)
        self.effort -= 1
        if any(self._follows_from(fact, total) for fact in self.ranges.facts):
            return True
        return any(
            all(self.holds(goal, depth - 1) for goal in goals)
            for goals in self._relaxations(total, depth)
        )

    def _follows_from(self, fact: Linear, total: Linear) -> bool:
        if fact.terms.keys().isdisjoint(total.terms):
            return False
        low = linear_bounds(total.minus(fact), self.ranges).low
        return low is not None and low >= 0

    def _relaxations(self, total: Linear, depth: int) -> Iterator[Goals]:
        """Ways to prove `total` non-negative: each by proving all of its sums non-negative."""
        yield from self._join_remainders(total)
        yield from self._open_first(total)
        yield from self._eliminate(total, depth)
        for fact in self.ranges.facts:
            yield from _cancel(total, fact)

    def _join_remainders(self, total: Linear) -> Iterator[Goals]:
        """x % c beside x // c is x - c * (x // c)."""
        for atom, k in total.terms.items():
            if not isinstance(atom, Binary) or atom.op != "floormod":
                continue
            quotient, c = Binary("floordiv", atom.a, atom.b), number(atom.b)
            x = exact_linear(atom.a, self.ranges) if quotient in total.terms else None
            if x is not None and c is not None and c > 0:
                whole = x.minus(Linear({quotient: c}, 0, x.dtype))
                yield (total.without(atom).plus(whole, k),)

    def _open_first(self, total: Linear) -> Iterator[Goals]:
        """By the first atom that can be opened; then by the first of those that depend on the
        innermost loop, whose bounds may determine those of the others."""
        opened = None
        for atom, coefficient in total.ordered():
            ways = list(open_atom(atom, coefficient, total.without(atom), self.ranges))
            if ways:
                opened = atom
                yield from ways
                break
        rest = [(a, k) for a, k in total.ordered() if a is not opened and not isinstance(a, Var)]
        if opened is None or not rest:
            return
        for var in self.ranges.innermost_first():
            if var in opened.variables:
                return
            for atom, coefficient in rest:
                if var in atom.variables:
                    yield from open_atom(atom, coefficient, total.without(atom), self.ranges)
                    return

    def _eliminate(self, total: Linear, depth: int) -> Iterator[Goals]:
        for var in _innermost_vars(total, self.ranges):
            without, slope = in_powers_of(total, var)
            end = None if slope is None else self._end(var, slope, depth)
            if slope is not None and end is not None:
                yield (without.plus(slope.times(end)),)
                return

    def _end(self, var: Var, slope: Linear, depth: int) -> Linear | None:
        """The bound at which `slope * var` is least, where the sign of the slope is known."""
        sign = slope_sign(slope, self.ranges)
        if sign:
            return end_at(var, self.ranges, low=sign > 0)
        if slope.is_constant or depth < 2:
            return None
        for sign in (1, -1):
            if self.holds(slope.scaled(sign), depth - 2):
                return end_at(var, self.ranges, low=sign > 0)
        return None


def slope_sign(slope: Linear, ranges: Ranges) -> int:
    """1 where it is never negative, -1 where never positive, 0 where its bounds decide neither."""
    limits = linear_bounds(slope, ranges)
    if limits.low is not None and limits.low >= 0:
        return 1
    return -1 if limits.high is not None and limits.high <= 0 else 0


def _innermost_vars(total: Linear, ranges: Ranges) -> list[Var]:
    """The variables with known ranges among the factors of the sum, innermost first."""
    present = {f for atom in total.terms for f in factors(atom) if isinstance(f, Var)}
    ranged = [v for v in ranges.innermost_first() if v in present]
    limited = [v for v in present if v not in ranges.variables and v in ranges.limits]
    return [*ranged, *sorted(limited, key=lambda v: v.serial)]


def in_powers_of(total: Linear, var: Var) -> tuple[Linear, Linear | None]:
    """total = without + slope * var; no slope where the variable is squared."""
    without, slope = Linear({}, total.constant, total.dtype), Linear({}, 0, total.dtype)
    for atom, coefficient in total.terms.items():
        parts = factors(atom)
        left = [f for f in parts if f is not var]
        count = len(parts) - len(left)
        if count == 0:
            without = without.plus(Linear({atom: coefficient}, 0, total.dtype))
        elif count == 1:
            term = Linear({product(left): coefficient}, 0, total.dtype) if left else None
            slope = slope.shifted(coefficient) if term is None else slope.plus(term)
        else:
            return total, None
    return without, slope


def end_at(var: Var, ranges: Ranges, low: bool) -> Linear | None:
    """The lower (or upper) bound of a variable."""
    known = ranges.variables.get(var)
    end = None if known is None else known.low if low else known.high
    if end is not None:
        return exact_linear(end, ranges)
    limits = ranges.limit(var)
    value = limits.low if low else limits.high
    return None if value is None else Linear({}, value, var.dtype)


def _cancel(total: Linear, fact: Linear) -> Iterator[Goals]:
    """Subtract a multiple of a fact (>= 0) such that a term they share disappears."""
    for atom, coefficient in total.terms.items():
        known = fact.terms.get(atom, 0)
        if known * coefficient > 0:
            yield (_multiple(total, abs(known)).plus(fact, -abs(coefficient)),)


def _multiple(total: Linear, c: int) -> Linear:
    """c * total + c - 1: for integers, this is not negative exactly where `total` is not."""
    return total.scaled(c).shifted(c - 1)


# ---- opening atoms ------------------------------------------------------------------------------


def open_atom(atom: Expr, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    """Ways to bound `k * atom + rest` from below without the atom."""
    if isinstance(atom, Binary):
        rule = _OPEN.get(atom.op)
        if rule is not None:
            yield from rule(atom, k, rest, ranges)
    elif isinstance(atom, Select):
        yield from _both_sides(atom.a, atom.b, k, rest, ranges)
    elif isinstance(atom, Cast):
        yield from _open_cast(atom, k, rest, ranges)


def _open_min(atom: Binary, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    a, b = exact_linear(atom.a, ranges), exact_linear(atom.b, ranges)
    if a is None or b is None:
        return
    goals = (rest.plus(a, k), rest.plus(b, k))
    # +min needs both sides, -min just one; the other way round for max.
    if (k > 0) == (atom.op == "min"):
        yield goals
    else:
        yield from ((goal,) for goal in goals)


def _both_sides(a: Expr, b: Expr, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    x, y = exact_linear(a, ranges), exact_linear(b, ranges)
    if x is not None and y is not None:
        yield (rest.plus(x, k), rest.plus(y, k))


def _open_floordiv(atom: Binary, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    """c * (x // c) is between x - c + 1 and x, for c > 0."""
    c, x = number(atom.b), exact_linear(atom.a, ranges)
    if x is None or (c is not None and c <= 0):
        return
    if c is None:
        yield from _open_quotient_by_symbol(atom, x, k, rest, ranges)
        return
    yield (_multiple(rest, c).plus(x.shifted(1 - c) if k > 0 else x, k),)


def _open_quotient_by_symbol(
    atom: Binary, x: Linear, k: int, rest: Linear, ranges: Ranges
) -> Iterator[Goals]:
    """x // d <= r where x < (r + 1) * d, and x // d >= -r where x + r * d >= 0, for d > 0."""
    d = exact_linear(atom.b, ranges)
    if d is None or not is_index(d.dtype) or abs(k) != 1 or not _is_above_zero(d, ranges):
        return
    # Values that were widened are bounded by themselves, not as factors of wider numbers.
    if any(term.dtype is not d.dtype for term in rest.terms):
        return
    yield (rest.shifted(1).times(d).minus(x).shifted(-1) if k < 0 else rest.times(d).plus(x),)


def _open_floormod(atom: Binary, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    """x % d is between 0 and d - 1, and no more than x itself where x >= 0; for d > 0."""
    d, x = exact_linear(atom.b, ranges), exact_linear(atom.a, ranges)
    if d is None or x is None or not _is_above_zero(d, ranges):
        return
    if k > 0:
        yield (rest,)
        return
    yield (rest.plus(d.shifted(-1), k),)
    low = linear_bounds(x, ranges).low
    if low is not None and low >= 0:
        yield (rest.plus(x, k),)


def _open_product(atom: Binary, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    """d * (x // d) is between x - d + 1 and x, for d > 0."""
    for quotient in factors(atom):
        if not (isinstance(quotient, Binary) and quotient.op == "floordiv"):
            continue
        others = [f for f in factors(atom) if f is not quotient]
        d, x = exact_linear(quotient.b, ranges), exact_linear(quotient.a, ranges)
        if d is None or x is None or d.constant or len(d.terms) != 1 or 1 not in d.terms.values():
            continue
        if others and product(others) in d.terms and _is_above_zero(d, ranges):
            yield (rest.plus(x.minus(d).shifted(1) if k > 0 else x, k),)
            return


def _open_cast(atom: Cast, k: int, rest: Linear, ranges: Ranges) -> Iterator[Goals]:
    if not atom.a.dtype.is_integer or atom.dtype.is_vector:
        return
    x = exact_linear(atom.a, ranges)
    if x is not None and bounds(atom.a, ranges).within(Interval.of_type(atom.dtype)):
        yield (Linear(rest.terms, rest.constant, rest.dtype).plus(x, k),)


def _is_above_zero(total: Linear, ranges: Ranges) -> bool:
    low = linear_bounds(total, ranges).low
    return low is not None and low > 0


_OPEN: dict[str, Callable[[Binary, int, Linear, Ranges], Iterator[Goals]]] = {
    "min": _open_min,
    "max": _open_min,
    "floordiv": _open_floordiv,
    "floormod": _open_floormod,
    "mul": _open_product,
}
