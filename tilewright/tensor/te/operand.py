"""Operators for objects that can be used as scalar expressions without being one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tilewright.ir import Expr, Operators, binary, unary


def one_or_several(value: Any) -> tuple[Any, ...]:
    """A tuple or list as a tuple; anything else as the only item of one."""
    return tuple(cast("Sequence[Any]", value)) if isinstance(value, tuple | list) else (value,)


class Operand(Operators):
    """Applies every operator to `as_expr()`, which explains where that is impossible."""

    __slots__ = ()

    def astype(self, dtype: object) -> Expr:
        return self.as_expr().astype(dtype)

    def _binary(self, op: str, a: Any, b: Any) -> Expr:
        return binary(op, a, b)

    def _unary(self, op: str) -> Expr:
        return unary(op, self.as_expr())

    def __eq__(self, other: object) -> Any:
        return self.as_expr() == other

    def __ne__(self, other: object) -> Any:
        return self.as_expr() != other

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self.as_expr())
