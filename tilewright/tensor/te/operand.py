"""Operators for what can stand where a scalar expression is wanted, but is none itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tilewright.ir import Expr


def one_or_several(value: Any) -> tuple[Any, ...]:
    """A tuple or list as a tuple; anything else as the only item of one."""
    return tuple(cast("Sequence[Any]", value)) if isinstance(value, tuple | list) else (value,)


class Operand:
    """Hands every operator on to `as_expr()`, which says why where it cannot be one."""

    __slots__ = ()

    def as_expr(self) -> Expr:
        raise NotImplementedError

    def astype(self, dtype: object) -> Expr:
        return self.as_expr().astype(dtype)

    def __add__(self, other: Any) -> Expr:
        return self.as_expr() + other

    def __radd__(self, other: Any) -> Expr:
        return other + self.as_expr()

    def __sub__(self, other: Any) -> Expr:
        return self.as_expr() - other

    def __rsub__(self, other: Any) -> Expr:
        return other - self.as_expr()

    def __mul__(self, other: Any) -> Expr:
        return self.as_expr() * other

    def __rmul__(self, other: Any) -> Expr:
        return other * self.as_expr()

    def __truediv__(self, other: Any) -> Expr:
        return self.as_expr() / other

    def __rtruediv__(self, other: Any) -> Expr:
        return other / self.as_expr()

    def __floordiv__(self, other: Any) -> Expr:
        return self.as_expr() // other

    def __rfloordiv__(self, other: Any) -> Expr:
        return other // self.as_expr()

    def __mod__(self, other: Any) -> Expr:
        return self.as_expr() % other

    def __rmod__(self, other: Any) -> Expr:
        return other % self.as_expr()

    def __neg__(self) -> Expr:
        return -self.as_expr()

    def __pos__(self) -> Expr:
        return self.as_expr()

    def __and__(self, other: Any) -> Expr:
        return self.as_expr() & other

    def __or__(self, other: Any) -> Expr:
        return self.as_expr() | other

    def __xor__(self, other: Any) -> Expr:
        return self.as_expr() ^ other

    def __invert__(self) -> Expr:
        return ~self.as_expr()

    def __lshift__(self, other: Any) -> Expr:
        return self.as_expr() << other

    def __rshift__(self, other: Any) -> Expr:
        return self.as_expr() >> other

    def __lt__(self, other: Any) -> Expr:
        return self.as_expr() < other

    def __le__(self, other: Any) -> Expr:
        return self.as_expr() <= other

    def __gt__(self, other: Any) -> Expr:
        return self.as_expr() > other

    def __ge__(self, other: Any) -> Expr:
        return self.as_expr() >= other

    def __eq__(self, other: object) -> Any:
        return self.as_expr() == other

    def __ne__(self, other: object) -> Any:
        return self.as_expr() != other

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self.as_expr())
