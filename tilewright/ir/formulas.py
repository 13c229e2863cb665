"""What the formula of an element computes, and its cost.

Fusion of the graph and the rules of schedules both depend on this: what a contraction is, and what
is cheap enough to be recomputed by every reader. Fusion counts operations on elements, as indices
are not final yet; schedules count loads and index arithmetic as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.ir.expr import Binary, Call, Cast, Expr, Load, Select
from tilewright.ir.intrinsics import TRANSCENDENTAL
from tilewright.ir.visit import loads_in, walk_expr

#: Up to this cost, an element is recomputed by every reader rather than stored.
CHEAP: Final = 8
#: Cost of a transcendental function, in operations on elements.
_TRANSCENDENTAL_COST: Final = 10
#: Work of a transcendental function and of a division, in instructions.
_TRANSCENDENTAL_WORK, _DIVISION_WORK = 20, 6
_DIVISIONS: Final = frozenset(["floordiv", "floormod", "truncdiv", "truncmod", "div"])


def _unconverted(e: Expr) -> Expr:
    """The expression below conversions."""
    while isinstance(e, Cast):
        e = e.a
    return e


def product_of_loads(e: Expr) -> tuple[Load, Load] | None:
    """The two loads that `e` multiplies, each maybe converted, if it is such a product.

    A sum of such products is a contraction; a square has one load only. Loads at indices that are
    themselves loaded do not count: nothing is known about their positions.
    """
    if not isinstance(e, Binary) or e.op != "mul":
        return None
    a, b = _unconverted(e.a), _unconverted(e.b)
    if not isinstance(a, Load) or not isinstance(b, Load) or a is b:
        return None
    is_plain = not any(loads_in(i) for load in (a, b) for i in load.indices)
    return (a, b) if is_plain else None


def cost_of(value: Expr) -> int:
    """Roughly how many operations an element takes; index arithmetic is not counted."""
    return sum(_cost(e) for e in walk_expr(value))


def is_cheap(values: Iterable[Expr]) -> bool:
    """Whether recomputing elements costs about as much as loading them."""
    return sum(map(cost_of, values)) <= CHEAP


def work_of(nodes: Iterable[Expr]) -> int:
    """Roughly how many instructions these nodes take, loads and index arithmetic included."""
    return sum(map(_work, nodes))


def _cost(e: Expr) -> int:
    if isinstance(e, Call):
        return _TRANSCENDENTAL_COST if _is_transcendental(e) else 1
    return 1 if isinstance(e, Binary | Select | Cast) and not e.dtype.is_integer else 0


def _work(e: Expr) -> int:
    if isinstance(e, Call):
        return _TRANSCENDENTAL_WORK if _is_transcendental(e) else 1
    if isinstance(e, Binary):
        return _DIVISION_WORK if e.op in _DIVISIONS else 1
    return 1 if isinstance(e, Load | Select) else 0


def _is_transcendental(e: Call) -> bool:
    return e.name in TRANSCENDENTAL or e.name == "pow"
