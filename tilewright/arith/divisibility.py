"""Constants that divide an expression whatever its variables are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.interval import is_index
from tilewright.arith.linear import Linear, factors, is_product, is_sum, linear, number
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Broadcast, Const, Expr, Select

_NOTHING = Ranges()


def divisor(expr: Expr, ranges: Ranges | None = None) -> int:
    """The largest constant known to divide an integer expression; 0 for zero itself.

    Where a type wraps around, only powers of two survive.
    """
    ranges = _NOTHING if ranges is None else ranges
    value = number(expr)
    if value is not None:
        return abs(value)
    found = (
        linear_divisor(linear(expr), ranges)
        if is_sum(expr) or is_product(expr)
        else _of_atom(expr, ranges)
    )
    found = math.lcm(found, ranges.multiples.get(expr, 1))
    return found if is_index(expr.dtype) or found == 0 else found & -found


def linear_divisor(total: Linear, ranges: Ranges) -> int:
    result = abs(total.constant)
    for atom, coefficient in total.terms.items():
        if result == 1:
            return 1
        result = math.gcd(result, coefficient * _of_product(atom, ranges))
    return result


def _of_product(atom: Expr, ranges: Ranges) -> int:
    known = ranges.multiples.get(atom, 1)
    return math.lcm(known, math.prod(_of_factor(f, ranges) for f in factors(atom)))


def _of_factor(atom: Expr, ranges: Ranges) -> int:
    return math.lcm(_of_atom(atom, ranges), ranges.multiples.get(atom, 1))


def _of_atom(atom: Expr, ranges: Ranges) -> int:
    rule = _ATOMS.get(atom.op if isinstance(atom, Binary) else type(atom))
    return 1 if rule is None or not atom.dtype.is_integer else rule(atom, ranges)


def _either(a: Expr, b: Expr, ranges: Ranges) -> int:
    return math.gcd(divisor(a, ranges), divisor(b, ranges))


def _of_quotient(atom: Binary, ranges: Ranges) -> int:
    by = number(atom.b)
    above = divisor(atom.a, ranges) if by else 1
    return above // abs(by) if by and above % by == 0 else 1


_ATOMS: dict[object, Callable[[Any, Ranges], int]] = {
    "min": lambda e, r: _either(e.a, e.b, r),
    "max": lambda e, r: _either(e.a, e.b, r),
    "floormod": lambda e, r: _either(e.a, e.b, r),
    "floordiv": _of_quotient,
    Select: lambda e, r: _either(e.a, e.b, r),
    Broadcast: lambda e, r: divisor(e.a, r),
    Const: lambda e, _: abs(int(e.value)),
}
