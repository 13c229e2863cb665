"""Constants that divide an expression whatever its variables are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.interval import is_index
from tilewright.arith.linear import Linear, factors, number
from tilewright.arith.linearize import is_product, is_sum, linear
from tilewright.arith.ranges import Ranges, knowing_nothing
from tilewright.ir import Binary, Broadcast, Expr, Ramp, Select

_Known = dict[Expr, int]


def divisor(root: Expr, ranges: Ranges | None = None) -> int:
    """The largest constant known to divide an integer expression in every lane; 0 for zero itself.

    Where a type wraps around, only powers of two survive.
    """
    ranges = knowing_nothing() if ranges is None else ranges
    known: _Known = {} if ranges is knowing_nothing() else ranges.memo("divisor")
    pending = [root]
    while pending:
        node = pending[-1]
        missing = [o for o in _needed(node) if o not in known]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if node not in known:
            known[node] = _divisor(node, ranges, known)
    return known[root]


def _needed(node: Expr) -> list[Expr]:
    if not node.dtype.is_integer or number(node) is not None:
        return []
    if is_sum(node) or is_product(node):
        return [f for atom in linear(node).terms for f in factors(atom)]
    return [o for o in node.operands if o.dtype.is_integer] if _kind(node) in _ATOMS else []


def _kind(node: Expr) -> object:
    return node.op if isinstance(node, Binary) else type(node)


def _divisor(node: Expr, ranges: Ranges, known: _Known) -> int:
    value = number(node)
    if value is not None:
        return abs(value)
    if is_sum(node) or is_product(node):
        found = _of_sum(linear(node), ranges, known)
    else:
        rule = _ATOMS.get(_kind(node))
        found = 1 if rule is None or not node.dtype.is_integer else rule(node, known)
    found = math.lcm(found, ranges.multiples.get(node, 1))
    return found if is_index(node.dtype) else found & -found


def _of_sum(total: Linear, ranges: Ranges, known: _Known) -> int:
    result = abs(total.constant)
    for atom, coefficient in total.terms.items():
        of_atom = math.prod(known[f] for f in factors(atom))
        result = math.gcd(result, coefficient * math.lcm(of_atom, ranges.multiples.get(atom, 1)))
    return result


def _either(e: Any, known: _Known) -> int:
    return math.gcd(known[e.a], known[e.b])


def _of_bits(e: Binary, known: _Known) -> int:
    """The powers of two that divide both: low bits that are zero in both."""
    both = _either(e, known)
    return both & -both


def _of_quotient(e: Binary, known: _Known) -> int:
    by, above = number(e.b), known[e.a]
    return above // abs(by) if by and above % by == 0 else 1


def _of_ramp(e: Ramp, known: _Known) -> int:
    return math.gcd(known[e.base], known[e.stride])


_ATOMS: dict[object, Callable[[Any, _Known], int]] = {
    "min": _either,
    "max": _either,
    "floormod": _either,
    "truncmod": _either,
    "floordiv": _of_quotient,
    "truncdiv": _of_quotient,
    "bitxor": _of_bits,
    "bitor": _of_bits,
    Select: _either,
    Broadcast: lambda e, known: known[e.a],
    Ramp: _of_ramp,
}
