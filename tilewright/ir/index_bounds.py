"""The least and the greatest value of an index over the ranges of inner variables.

Regions need this below the `arith` package, so it knows only the parts of indices: sums and
constant multiples, floor division and remainder by constants, min, max and selects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    cast,
    maximum,
    minimum,
)
from tilewright.ir.visit import free_vars, walk_expr
from tilewright.support.dtype import DType, index

#: Beyond these an index counts as unknown, to save time.
_MAX_STEPS = 4096
_MAX_DEPTH = 32


class Extremes(NamedTuple):
    """The least and the greatest value."""

    low: Expr
    high: Expr


Inner = Mapping[Var, Extremes]


# ---- sums of multiples --------------------------------------------------------------------------


@dataclass(slots=True)
class Affine:
    """constant + Σ terms[atom] · atom."""

    terms: dict[Expr, int]
    constant: int
    dtype: DType = index

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """The sum with `factor` times the other."""
        terms = dict(self.terms)
        for atom, times in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * times
        return Affine(_nonzero(terms), self.constant + factor * other.constant, self.dtype)

    def expr(self) -> Expr:
        """As an expression: positive terms first, then negative ones, then the constant."""
        total: Expr | None = None
        for atom, factor in sorted(self.terms.items(), key=lambda t: t[1] < 0):
            total = _plus_term(total, atom, factor)
        if total is None:
            return Const(self.constant, self.dtype)
        if self.constant == 0:
            return total
        return total + self.constant if self.constant > 0 else total - -self.constant


def affine(expr: Expr) -> Affine:
    """A scalar integer expression as a sum of multiples of atoms, which are not sums."""
    terms: dict[Expr, int] = {}
    constant, steps = 0, 0
    pending = [(expr, 1)]
    while pending:
        node, factor = pending.pop()
        steps += 1
        parts = _parts(node, factor) if steps < _MAX_STEPS else None
        if parts is not None:
            pending.extend(reversed(parts))
        elif isinstance(node, Const):
            constant += factor * int(node.value)
        else:
            terms[node] = terms.get(node, 0) + factor
    return Affine(_nonzero(terms), constant, expr.dtype)


def difference(a: Expr, b: Expr) -> int | None:
    """`a - b` where that is a constant."""
    if a is b:
        return 0
    gap = affine(a).plus(affine(b), -1)
    return None if gap.terms else gap.constant


def extent_between(low: Expr, high: Expr) -> Expr:
    """The number of integers from `low` to `high`, both included."""
    if low is high:
        return Const(1, low.dtype)
    count = affine(high).plus(affine(low), -1)
    count.constant += 1
    return count.expr()


def lesser(a: Expr, b: Expr) -> Expr:
    gap = difference(a, b)
    return minimum(a, b) if gap is None else (a if gap <= 0 else b)


def greater(a: Expr, b: Expr) -> Expr:
    gap = difference(a, b)
    return maximum(a, b) if gap is None else (a if gap >= 0 else b)


def _nonzero(terms: dict[Expr, int]) -> dict[Expr, int]:
    return {atom: factor for atom, factor in terms.items() if factor}


def _parts(node: Expr, factor: int) -> list[tuple[Expr, int]] | None:
    """The terms of `node` times `factor`, or None if it is not a sum."""
    if isinstance(node, Unary):
        return [(node.a, -factor)] if node.op == "neg" else None
    if not isinstance(node, Binary):
        return None
    if node.op in ("add", "sub"):
        return [(node.a, factor), (node.b, factor if node.op == "add" else -factor)]
    if node.op == "mul" and isinstance(node.b, Const):
        return [(node.a, factor * int(node.b.value))]
    if node.op == "mul" and isinstance(node.a, Const):
        return [(node.b, factor * int(node.a.value))]
    return None


def _plus_term(total: Expr | None, atom: Expr, factor: int) -> Expr:
    term = atom if abs(factor) == 1 else atom * abs(factor)
    if total is None:
        return term if factor > 0 else -term
    return total + term if factor > 0 else total - term


# ---- extremes -----------------------------------------------------------------------------------


def extremes(expr: Expr, inner: Inner) -> Extremes | None:
    """The bounds of `expr` in terms of variables that are not `inner`; None if not known.

    Loaded values have no known bounds.
    """
    if isinstance(expr, Var):
        return inner.get(expr) or Extremes(expr, expr)
    if any(isinstance(node, Load) for node in walk_expr(expr)):
        return None
    return _extremes(expr, inner, 0)


def _extremes(expr: Expr, inner: Inner, depth: int) -> Extremes | None:
    if not expr.dtype.is_vector and free_vars(expr).isdisjoint(inner):
        return Extremes(expr, expr)
    if depth > _MAX_DEPTH:
        return None
    if expr.dtype.is_vector:
        rule = _VECTORS.get(type(expr))
        return None if rule is None else rule(expr, inner, depth)
    return _of_sum(affine(expr), inner, depth)


def _of_sum(total: Affine, inner: Inner, depth: int) -> Extremes | None:
    low = high = Affine({}, total.constant, total.dtype)
    for atom, factor in total.terms.items():
        found = _of_atom(atom, inner, depth + 1)
        if found is None:
            return None
        least, greatest = found if factor > 0 else (found.high, found.low)
        low, high = low.plus(affine(least), factor), high.plus(affine(greatest), factor)
    return Extremes(low.expr(), high.expr())


def _of_atom(atom: Expr, inner: Inner, depth: int) -> Extremes | None:
    if free_vars(atom).isdisjoint(inner):
        return Extremes(atom, atom)
    if isinstance(atom, Var):
        return inner[atom]
    rule = _ATOMS.get(type(atom))
    return None if rule is None else rule(atom, inner, depth)


def _of_binary(node: Binary, inner: Inner, depth: int) -> Extremes | None:
    rule = _BINARIES.get(node.op)
    if rule is None:
        return None
    a, b = _extremes(node.a, inner, depth), _extremes(node.b, inner, depth)
    return None if a is None or b is None else rule(a, b)


def _quotient(a: Extremes, b: Extremes) -> Extremes | None:
    if not _is_positive(b):
        return None
    return Extremes(_floordiv(a.low, b.low), _floordiv(a.high, b.low))


def _remainder(a: Extremes, b: Extremes) -> Extremes | None:
    if not _is_positive(b):
        return None
    by = b.low
    first, last = _floordiv(a.low, by), _floordiv(a.high, by)
    if isinstance(first, Const) and first is last:
        start = first * by
        return Extremes(affine(a.low - start).expr(), affine(a.high - start).expr())
    return Extremes(Const(0, by.dtype), affine(by - 1).expr())


def _is_positive(divisor: Extremes) -> bool:
    low = divisor.low
    return low is divisor.high and isinstance(low, Const) and low.value > 0


def _floordiv(a: Expr, by: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(by, Const):
        return Const(int(a.value) // int(by.value), a.dtype)
    return a // by


def _of_cast(node: Cast, inner: Inner, depth: int) -> Extremes | None:
    source = node.a.dtype
    # A narrowing or a change of sign could wrap around between the extremes.
    if not source.is_integer or source.kind != node.dtype.kind or source.bits > node.dtype.bits:
        return None
    found = _extremes(node.a, inner, depth)
    if found is None:
        return None
    return Extremes(cast(found.low, node.dtype), cast(found.high, node.dtype))


def _of_select(node: Select, inner: Inner, depth: int) -> Extremes | None:
    a, b = _extremes(node.a, inner, depth), _extremes(node.b, inner, depth)
    return None if a is None or b is None else hull(a, b)


def hull(a: Extremes, b: Extremes) -> Extremes:
    """The smallest range that contains both."""
    return Extremes(lesser(a.low, b.low), greater(a.high, b.high))


def _of_ramp(node: Ramp, inner: Inner, depth: int) -> Extremes | None:
    last = _of_sum(affine(node.base).plus(affine(node.stride), node.dtype.lanes - 1), inner, depth)
    first = _extremes(node.base, inner, depth)
    return None if first is None or last is None else hull(first, last)


def _of_broadcast(node: Broadcast, inner: Inner, depth: int) -> Extremes | None:
    return _extremes(node.a, inner, depth)


def _of_vector_sum(node: Binary, inner: Inner, depth: int) -> Extremes | None:
    if node.op not in ("add", "sub"):
        return None
    a, b = _extremes(node.a, inner, depth + 1), _extremes(node.b, inner, depth + 1)
    if a is None or b is None:
        return None
    sign, b = (1, b) if node.op == "add" else (-1, Extremes(b.high, b.low))
    low = affine(a.low).plus(affine(b.low), sign).expr()
    return Extremes(low, affine(a.high).plus(affine(b.high), sign).expr())


_BINARIES: dict[str, Callable[[Extremes, Extremes], Extremes | None]] = {
    "floordiv": _quotient,
    "floormod": _remainder,
    "min": lambda a, b: Extremes(lesser(a.low, b.low), lesser(a.high, b.high)),
    "max": lambda a, b: Extremes(greater(a.low, b.low), greater(a.high, b.high)),
}
_Rule = Callable[[Any, Inner, int], Extremes | None]
_ATOMS: dict[type[Expr], _Rule] = {Binary: _of_binary, Cast: _of_cast, Select: _of_select}
_VECTORS: dict[type[Expr], _Rule] = {
    Ramp: _of_ramp,
    Broadcast: _of_broadcast,
    Binary: _of_vector_sum,
}
