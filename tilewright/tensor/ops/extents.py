"""Arithmetic on extents that stays with whole numbers wherever they are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import Const, Expr, as_expr, const
from tilewright.support.errors import UserError

Extent = int | Expr


def known(extent: Any) -> Extent:
    """A constant as a Python number, so that arithmetic on it folds."""
    return int(extent.value) if isinstance(extent, Const) else extent


def static(extent: Expr, what: str) -> int:
    """An extent that has to be a number."""
    value = known(extent)
    if not isinstance(value, int):
        raise UserError(f"{what} is `{extent}`", reason="it has to be known before it runs")
    return value


def plus(a: Any, b: Any) -> Extent:
    """a + b without adding zeros."""
    a, b = known(a), known(b)
    if isinstance(b, int) and not isinstance(a, int):
        return a if b == 0 else (a + b if b > 0 else a - -b)
    return b if isinstance(a, int) and a == 0 else a + b


def minus(a: Any, b: Any) -> Extent:
    """a - b without subtracting zeros."""
    b = known(b)
    return plus(a, -b) if isinstance(b, int) else as_expr(a) - b


def times(a: Any, b: Any) -> Extent:
    """a * b without multiplying by ones or by zero."""
    a, b = known(a), known(b)
    if isinstance(a, int):
        a, b = b, a
    if isinstance(b, int) and b in (0, 1):
        return a if b else 0
    return a * b


def product(extents: Sequence[Any]) -> Extent:
    """All of them multiplied."""
    result: Extent = 1
    for extent in extents:
        result = times(result, extent)
    return result


def may_be_equal(a: Any, b: Any) -> bool:
    """False only for two different numbers."""
    a, b = known(a), known(b)
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def require_equal(op: str, what: str, a: Any, b: Any) -> None:
    if not may_be_equal(a, b):
        raise UserError(f"{op} cannot be applied: {what} differ", reason=f"{a} and {b}")


def axis_of(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the end."""
    if not -rank <= axis < rank:
        raise UserError(f"{op} has no axis {axis}", reason=f"the tensor has {rank} dimensions")
    return axis % rank


def broadcast_shape(op: str, shapes: Sequence[Sequence[Expr]]) -> list[Expr]:
    """The shape that NumPy's rules give: aligned at the end, extents of one are stretched."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Expr] = [const(1)] * rank
    for shape in shapes:
        for n, extent in enumerate(shape, rank - len(shape)):
            if is_one(result[n]):
                result[n] = extent
            elif not is_one(extent):
                require_equal(op, f"extents of dimension {n}", result[n], extent)
    return result


def broadcast_index(shape: Sequence[Expr], indices: Sequence[Any]) -> tuple[Any, ...]:
    """Where to read a tensor of `shape` for an element of the broadcast result."""
    own = indices[len(indices) - len(shape) :]
    return tuple(const(0) if is_one(e) else i for e, i in zip(shape, own, strict=True))


def is_one(extent: Any) -> bool:
    value = known(extent)
    return isinstance(value, int) and value == 1


def row_major(indices: Sequence[Any], extents: Sequence[Any]) -> Expr:
    """The position of an element in an array of these extents."""
    position: Any = 0
    for index, extent in zip(indices, extents, strict=True):
        position = plus(times(position, extent), 0 if is_one(extent) else index)
    return as_expr(position)
