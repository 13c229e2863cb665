"""Axes and extents as operators take them: counted from either end, numbers or expressions."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graph.ir.attributes import Dim
from tilewright.graph.ir.types import known_dim
from tilewright.graph.sizes.naturals import naturals as known_about
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Expr, Var, as_expr, maximum, minimum
from tilewright.support.errors import UserError


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the end."""
    if not -rank <= axis < rank:
        raise UserError(f"there is no axis {axis}", reason=f"the tensor has {rank} dimensions")
    return axis % rank


def axes_of(axes: Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, each given once; all of them for None."""
    if axes is None:
        return tuple(range(rank))
    found = tuple(axis_of(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise UserError(f"the axes {list(axes)} name one axis twice")
    return found


def tidy(extent: Dim, *naturals: Expr) -> Expr:
    """An extent, simplified; variables among `naturals` are not negative."""
    extent = as_expr(extent)
    ranges = known_about(extent)
    for dim in dict.fromkeys(d for d in naturals if isinstance(d, Var)):
        if dim not in ranges.variables:
            ranges = ranges.with_bounds(dim, 0, None)
    return simplify_size(extent, ranges)


def counted_from_front(index: Dim, extent: Expr) -> Expr:
    """An index whose negative values count from the end of `extent`.

    It is written with minimum and maximum, which dimensions may contain, not with a select.
    """
    number = known_dim(index)
    if number is not None:
        return extent + number if number < 0 else as_expr(number)
    index = as_expr(index)
    is_negative = minimum(maximum(-index, 0), 1)
    return index + extent * is_negative


def clamped(value: Dim, low: Dim, high: Dim) -> Expr:
    """`value` clamped to `low` and `high`."""
    return minimum(maximum(as_expr(value), as_expr(low)), as_expr(high))
