"""What the formula of an element computes: fusion decides by this, and so do schedules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.ir.expr import Binary, Call, Cast, Expr, Load, Select
from tilewright.ir.intrinsics import TRANSCENDENTAL
from tilewright.ir.visit import loads_in, walk_expr

#: Operations that a transcendental function counts as.
_TRANSCENDENTAL_COST: Final = 10
#: Up to this cost, an element is computed again for everything that reads it, rather than stored.
_CHEAP: Final = 8


def _unconverted(e: Expr) -> Expr:
    """The expression below conversions."""
    while isinstance(e, Cast):
        e = e.a
    return e


def product_of_loads(e: Expr) -> tuple[Load, Load] | None:
    """The two elements that `e` multiplies, each maybe converted, if it does just that.

    A sum of such products is a contraction. Elements at places that are read from memory
    themselves do not count: nothing is known of where they lie.
    """
    if not isinstance(e, Binary) or e.op != "mul":
        return None
    a, b = _unconverted(e.a), _unconverted(e.b)
    if not isinstance(a, Load) or not isinstance(b, Load):
        return None
    is_plain = not any(loads_in(i) for load in (a, b) for i in load.indices)
    return (a, b) if is_plain else None


def cost_of(value: Expr) -> int:
    """Roughly how many operations an element takes; what computes indices is not counted."""
    return sum(_cost(e) for e in walk_expr(value))


def is_cheap(values: Iterable[Expr]) -> bool:
    """Whether computing elements again costs about as much as loading them."""
    return sum(map(cost_of, values)) <= _CHEAP


def _cost(e: Expr) -> int:
    if isinstance(e, Call):
        return _TRANSCENDENTAL_COST if e.name in TRANSCENDENTAL or e.name == "pow" else 1
    return 1 if isinstance(e, Binary | Select | Cast) and not e.dtype.is_integer else 0
