"""The usual reductions. `sum`, `min`, `max`, `any` and `all` are those of compute definitions."""

from __future__ import annotations

import operator
from typing import Any

from tilewright.ir import (
    Binary,
    DType,
    Expr,
    all_of,
    any_of,
    as_expr,
    call,
    maximum,
    minimum,
    select,
)
from tilewright.support.errors import UserError
from tilewright.tensor.te.operand import one_or_several
from tilewright.tensor.te.reduction import Reducer, Reduction, Values, highest, lowest

_sum = Reducer(operator.add, 0, "sum")
_prod = Reducer(operator.mul, 1, "prod")
_min = Reducer(minimum, highest, "min")
_max = Reducer(maximum, lowest, "max")
_any = Reducer(any_of, False, "any")
_all = Reducer(all_of, True, "all")


def sum(value: Any, axis: Any, where: Any = None) -> Reduction:
    """The sum over `axis` (one reduce axis or several) of the values where `where` holds."""
    return _sum(_number("sum", value), axis, where)


def prod(value: Any, axis: Any, where: Any = None) -> Reduction:
    """The product over `axis`."""
    return _prod(_number("prod", value), axis, where)


def min(a: Any, b: Any = None, *, axis: Any = None, where: Any = None) -> Any:
    """The lesser of two values; with `axis`, the least over the axis. NaN wins."""
    return _of_two_or_axis(_min, a, b, axis, where)


def max(a: Any, b: Any = None, *, axis: Any = None, where: Any = None) -> Any:
    """The greater of two values; with `axis`, the greatest over the axis. NaN wins."""
    return _of_two_or_axis(_max, a, b, axis, where)


def any(condition: Any, axis: Any, where: Any = None) -> Reduction:
    """Whether the condition holds anywhere on `axis`."""
    return _any(_condition("any", condition), axis, where)


def all(condition: Any, axis: Any, where: Any = None) -> Reduction:
    """Whether the condition holds everywhere on `axis`."""
    return _all(_condition("all", condition), axis, where)


def argmin(
    value: Any, axis: Any, *, index: Any = None, where: Any = None, with_value: bool = False
) -> Reduction:
    """Where on `axis` the least value is: the first of equals, and NaN counts as least.

    The compute gives the position, or the pair of position and value `with_value`. The position is
    the axis itself (row-major over several axes) unless `index` says what to count instead.
    """
    return _arg("argmin", value, axis, index, where, with_value)


def argmax(
    value: Any, axis: Any, *, index: Any = None, where: Any = None, with_value: bool = False
) -> Reduction:
    """Where on `axis` the greatest value is: the first of equals, and NaN counts as greatest.

    The compute gives the position, or the pair of position and value `with_value`. The position is
    the axis itself (row-major over several axes) unless `index` says what to count instead.
    """
    return _arg("argmax", value, axis, index, where, with_value)


def _of_two_or_axis(reducer: Reducer, a: Any, b: Any, axis: Any, where: Any) -> Any:
    name = reducer.name
    if (b is None) == (axis is None):
        raise UserError(
            f"te.{name} needs either two values or an axis",
            remedy=f"write te.{name}(a, b), or te.{name}(value, axis=k)",
        )
    if axis is not None:
        return reducer(a, axis, where)
    if where is not None:
        raise UserError(f"te.{name} of two values takes no `where`", remedy="use te.if_then_else")
    return minimum(a, b) if name == "min" else maximum(a, b)


def _number(name: str, value: Any) -> Expr:
    expr = as_expr(value)
    if expr.dtype.is_bool:
        raise UserError(
            f"te.{name} cannot reduce `{expr}`",
            reason="it is bool",
            remedy="convert it with .astype('int64'), or use te.any or te.all",
        )
    return expr


def _condition(name: str, value: Any) -> Expr:
    expr = as_expr(value)
    if not expr.dtype.is_bool:
        raise UserError(
            f"te.{name} cannot reduce `{expr}`",
            reason=f"it is {expr.dtype}, not bool",
            remedy="compare it with something, as in x != 0",
        )
    return expr


def _arg(name: str, value: Any, axis: Any, index: Any, where: Any, with_value: bool) -> Reduction:
    position = _position(axis) if index is None else as_expr(index)
    if not position.dtype.is_integer:
        raise UserError(f"te.{name} cannot count by `{position}`: it is {position.dtype}")
    reducer = Reducer(_better(name), _losing(name), name)
    return reducer((position, as_expr(value)), axis, where, hidden=0 if with_value else 1)


def _position(axis: Any) -> Expr:
    """The row-major position over the axes; one axis counts by its own value."""
    axes = one_or_several(axis)
    position = as_expr(axes[0])
    for inner in axes[1:]:
        position = position * inner.extent + inner.var
    return position


def _losing(name: str) -> Any:
    """The identity: the worst value at the last position, so that any candidate beats it."""
    worst = highest if name == "argmin" else lowest

    def identity(index: DType, value: DType) -> tuple[int | float, bool | int | float]:
        return index.max_value, worst(value)

    return identity


def _better(name: str) -> Any:
    """Combines two (position, value) pairs; ties go to the first, whatever the order is."""
    op = "lt" if name == "argmin" else "gt"

    def combine(a: Values, b: Values) -> Values:
        wins, ties = Binary(op, a[1], b[1]), a[1] == b[1]
        if a[1].dtype.is_float:
            a_nan, b_nan = call("isnan", a[1]), call("isnan", b[1])
            wins, ties = wins | (a_nan & ~b_nan), ties | (a_nan & b_nan)
        first = wins | (ties & (a[0] <= b[0]))
        return select(first, a[0], b[0]), select(first, a[1], b[1])

    return combine
