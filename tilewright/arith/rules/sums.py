"""Sums of integers: quotients and remainders that belong together, minima that absorb terms."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith.bounds import bounds
from tilewright.arith.divisibility import divisor
from tilewright.arith.interval import is_index
from tilewright.arith.linear import Linear, constant_of, factors, number, product
from tilewright.arith.linearize import linear
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Expr

SumRule = Callable[[Linear, Ranges], Linear | None]


def tidy(total: Linear, ranges: Ranges) -> Linear:
    """The sum after every rule below has had its say; a rule shortens it or moves terms inwards."""
    if all(number(a) is None and not isinstance(a, Binary) for a in total.terms):
        return total
    for rule in RULES:
        while (shorter := rule(total, ranges)) is not None:
            total = shorter.wrapped()
    return total


def _quotient(x: Expr, by: Expr) -> Expr:
    """x // by as its rules write it: (y // a) // b is y // (a*b)."""
    b = number(by)
    if b is not None and isinstance(x, Binary) and x.op == "floordiv":
        a = number(x.b)
        if a is not None and a > 0 and is_index(x.dtype):
            return Binary("floordiv", x.a, constant_of(a * b, x.dtype))
    return Binary("floordiv", x, by)


def _whole_again(total: Linear, ranges: Ranges) -> Linear | None:
    """(x // c)*c*k + (x % c)*k = x*k"""
    for atom, k in total.terms.items():
        if not isinstance(atom, Binary) or atom.op != "floormod":
            continue
        x, by = atom.a, atom.b
        c = number(by)
        if c is None and (bounds(by, ranges).low or 0) <= 0:
            continue
        quotient = _quotient(x, by)
        other = quotient if c is not None else product([*factors(quotient), *factors(by)])
        wanted = k if c is None else k * c
        if c != 0 and total.terms.get(other) == wanted:
            return total.without(atom, other).plus(linear(x), k)
    return None


def _longer_remainder(total: Linear, _r: Ranges) -> Linear | None:
    """(x // a % b)*a*k + (x % a)*k = (x % (a*b))*k"""
    if not is_index(total.dtype):
        return None
    remainders = [a for a in total.terms if isinstance(a, Binary) and a.op == "floormod"]
    low_parts = {(r.a, number(r.b)): r for r in remainders}
    for high in remainders:
        inner, b = high.a, number(high.b)
        if not isinstance(inner, Binary) or inner.op != "floordiv" or not b or b < 0:
            continue
        a = number(inner.b)
        low = low_parts.get((inner.a, a))
        if low is None or not a or a < 0 or total.terms[low] * a != total.terms[high]:
            continue
        longer = Binary("floormod", inner.a, constant_of(a * b, total.dtype))
        return total.without(low, high).plus(Linear({longer: total.terms[low]}, 0, total.dtype))
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


RULES: tuple[SumRule, ...] = (_whole_again, _longer_remainder, _exact_quotient, _absorbed)
