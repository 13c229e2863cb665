"""The operators that users apply to scalar expressions, and to objects that stand for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ir.expr.nodes import Expr


class Operators:
    """`a + b`, `a < b`, `~a` …, each of which makes a node."""

    __slots__ = ()

    def as_expr(self) -> Expr:
        """The expression that this is, or stands for."""
        raise NotImplementedError

    def _binary(self, op: str, a: Any, b: Any) -> Expr:
        """The node of an operation on two operands, one of which is this."""
        raise NotImplementedError

    def _unary(self, op: str) -> Expr:
        raise NotImplementedError

    def __add__(self, other: Any) -> Expr:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return self._binary("div", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return self._binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return self._binary("floordiv", other, self)

    def __mod__(self, other: Any) -> Expr:
        return self._binary("floormod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return self._binary("floormod", other, self)

    def __neg__(self) -> Expr:
        return self._unary("neg")

    def __pos__(self) -> Expr:
        return self.as_expr()

    def __and__(self, other: Any) -> Expr:
        return self._binary("and" if self.as_expr().dtype.is_bool else "bitand", self, other)

    def __or__(self, other: Any) -> Expr:
        return self._binary("or" if self.as_expr().dtype.is_bool else "bitor", self, other)

    def __xor__(self, other: Any) -> Expr:
        return self._binary("ne" if self.as_expr().dtype.is_bool else "bitxor", self, other)

    def __invert__(self) -> Expr:
        return self._unary("not" if self.as_expr().dtype.is_bool else "bitnot")

    def __lshift__(self, other: Any) -> Expr:
        return self._binary("shl", self, other)

    def __rshift__(self, other: Any) -> Expr:
        return self._binary("shr", self, other)

    def __lt__(self, other: Any) -> Expr:
        return self._binary("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return self._binary("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return self._binary("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return self._binary("ge", self, other)
