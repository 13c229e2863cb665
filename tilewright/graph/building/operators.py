"""Operators on values while a graph is being built: `x + y`, `x @ w`, `x[0, 1:]`."""

from __future__ import annotations

from typing import Any

from tilewright.support.errors import UserError


class ValueOperators:
    """Passes every operator on to the builder that the value belongs to."""

    __slots__ = ()

    builder: Any

    def _emit(self, op: str, *args: Any, **attrs: Any) -> Any:
        if self.builder is None:
            raise UserError(
                f"cannot apply {op} to {self!r}",
                reason="its graph is finished",
                remedy="call the builder instead, such as b.add(x, y)",
            )
        return self.builder.emit(op, *args, **attrs)

    def __add__(self, other: Any) -> Any:
        return self._emit("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._emit("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._emit("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._emit("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._emit("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._emit("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._emit("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._emit("div", other, self)

    def __pow__(self, other: Any) -> Any:
        return self._emit("pow", self, other)

    def __matmul__(self, other: Any) -> Any:
        return self._emit("matmul", self, other)

    def __mod__(self, other: Any) -> Any:
        return self._emit("mod", self, other)

    def __neg__(self) -> Any:
        return self._emit("neg", self)

    def __and__(self, other: Any) -> Any:
        return self._emit("logical_and", self, other)

    def __or__(self, other: Any) -> Any:
        return self._emit("logical_or", self, other)

    def __invert__(self) -> Any:
        return self._emit("logical_not", self)

    def __lt__(self, other: Any) -> Any:
        return self._emit("less", self, other)

    def __le__(self, other: Any) -> Any:
        return self._emit("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._emit("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._emit("greater_equal", self, other)

    def __getitem__(self, index: Any) -> Any:
        if self.builder is None:
            return self._emit("slice", self)
        return self.builder.index(self, index)

    def __iter__(self) -> Any:
        raise UserError(f"{self!r} cannot be iterated over", remedy="index it")
