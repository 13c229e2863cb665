"""Sums of integers: quotients and remainders of one dividend, minima that absorb terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.arith.bounds import bounds
from tilewright.arith.divisibility import divisor
from tilewright.arith.interval import is_index
from tilewright.arith.linear import Linear, constant_of, factors, number, product
from tilewright.arith.linearize import linear, multiplied
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Expr

SumRule = Callable[[Linear, Ranges], Linear | None]


def tidy(total: Linear, ranges: Ranges) -> Linear:
    """The sum after all rules below; each makes it shorter or moves terms inwards."""
    if all(number(a) is None and not isinstance(a, Binary) for a in total.terms):
        return total
    for rule in RULES:
        while (shorter := rule(total, ranges)) is not None:
            total = shorter.wrapped()
    return total


def _quotient(x: Expr, by: Expr) -> Expr:
    """x // by in canonical form: (y // a) // b is y // (a*b)."""
    b = number(by)
    if b is not None and isinstance(x, Binary) and x.op == "floordiv":
        a = number(x.b)
        if a is not None and a > 0 and is_index(x.dtype):
            return Binary("floordiv", x.a, constant_of(a * b, x.dtype))
    return Binary("floordiv", x, by)


def _remainders(total: Linear) -> Iterator[tuple[Expr, Binary, list[Expr]]]:
    """Terms with a factor x % c, that factor, and the other factors."""
    for atom in total.terms:
        if not isinstance(atom, Binary) or atom.op not in ("floormod", "mul"):
            continue
        parts = factors(atom)
        for k, part in enumerate(parts):
            if isinstance(part, Binary) and part.op == "floormod":
                yield atom, part, parts[:k] + parts[k + 1 :]


def _times(by: Expr, parts: list[Expr]) -> Linear:
    """`by` multiplied by the product of `parts`."""
    return multiplied(linear(by), Linear.of_atom(product(parts))) if parts else linear(by)


def _holds(total: Linear, part: Linear) -> bool:
    """Whether all terms of `part` are terms of `total`, with the same coefficients."""
    return all(total.terms.get(atom) == k for atom, k in part.terms.items())


def _is_positive(by: Expr, ranges: Ranges) -> bool:
    c = number(by)
    return c > 0 if c is not None else (bounds(by, ranges).low or 0) > 0


def _whole_again(total: Linear, ranges: Ranges) -> Linear | None:
    """(x // c)*c*k + (x % c)*k = x*k"""
    for atom, low, rest in _remainders(total):
        x, by, k = low.a, low.b, total.terms[atom]
        high = _times(by, [_quotient(x, by), *rest]).scaled(k)
        if _holds(total, high) and (number(by) or _is_positive(by, ranges)):
            return total.without(atom, *high.terms).plus(_times(x, rest), k)
    return None


def _longer_remainder(total: Linear, ranges: Ranges) -> Linear | None:
    """(x // a % b)*a*k + (x % a)*k = (x % (a*b))*k

    Multiples of a affect the quotient only: (p + x // a) % b and x % a are those of p*a + x.
    """
    if not is_index(total.dtype):
        return None
    inner = {h: linear(h.a) for _, h, _ in _remainders(total)}
    highs = {q: h for h, parts in inner.items() for q, n in parts.terms.items() if n == 1}
    for atom, low, rest in _remainders(total):
        a, k, quotient = low.b, total.terms[atom], Binary("floordiv", low.a, low.b)
        high = highs.get(quotient)
        if high is None or not (_is_positive(a, ranges) and _is_positive(high.b, ranges)):
            continue
        outer = _times(a, [high, *rest]).scaled(k)
        if _holds(total, outer):
            more = multiplied(linear(a), inner[high].without(quotient))
            x, period = more.plus(linear(low.a)), multiplied(linear(a), linear(high.b))
            longer = Binary("floormod", x.expr(), period.expr())
            return total.without(atom, *outer.terms).plus(_times(longer, rest), k)
    return None


def _exact_quotient(total: Linear, ranges: Ranges) -> Linear | None:
    """(x // c)*c*k = x*k where c divides x"""
    if not ranges.multiples:
        return None
    for atom, k in total.terms.items():
        if not isinstance(atom, Binary) or atom.op != "floordiv":
            continue
        c = number(atom.b)
        if c and c > 0 and k % c == 0 and divisor(atom.a, ranges) % c == 0:
            return total.without(atom).plus(linear(atom.a), k // c)
    return None


def _absorbed(total: Linear, _r: Ranges) -> Linear | None:
    """min(a, b + t) - t = min(a - t, b): a term moves inwards where it cancels one there"""
    if not is_index(total.dtype) or len(total.terms) < 2:
        return None
    for atom, k in total.terms.items():
        if not isinstance(atom, Binary) or atom.op not in ("min", "max") or abs(k) != 1:
            continue
        a, b = linear(atom.a), linear(atom.b)
        moving = {
            t: c for t, c in total.terms.items() if t is not atom and _cancels(t, c * k, a, b)
        }
        if moving:
            change = Linear(moving, 0, total.dtype).scaled(k)
            inner = Binary(atom.op, a.plus(change).expr(), b.plus(change).expr())
            return total.without(atom, *moving).plus(Linear.of_atom(inner), k)
    return None


def _cancels(term: Expr, coefficient: int, a: Linear, b: Linear) -> bool:
    return -coefficient in (a.terms.get(term), b.terms.get(term))


RULES: tuple[SumRule, ...] = (_longer_remainder, _whole_again, _exact_quotient, _absorbed)
