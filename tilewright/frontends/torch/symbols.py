"""Sizes of PyTorch, which are expressions of sympy, as dimensions of graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from tilewright.graph import Dim
from tilewright.ir import Expr, as_expr, maximum, minimum
from tilewright.support.errors import UserError


def _ceil_div(a: Expr, b: Expr) -> Expr:
    return (a + (b - 1)) // b


def _floor_div(a: Expr, b: Expr) -> Expr:
    return a // b


def _identity(x: Expr) -> Expr:
    return x


def _modular(x: Expr, divisor: Expr, modulus: Expr) -> Expr:
    return (x // divisor) % modulus


#: sympy's and torch's functions of sizes; of two operands, or folded over more.
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "Add": operator.add,
    "CeilDiv": _ceil_div,
    "CleanDiv": _floor_div,
    "FloorDiv": _floor_div,
    "FloorToInt": _identity,
    "Identity": _identity,
    "IntTrueDiv": _floor_div,
    "Max": maximum,
    "Min": minimum,
    "Mod": operator.mod,
    "ModularIndexing": _modular,
    "Mul": operator.mul,
    "PythonMod": operator.mod,
    "ToFloat": _identity,
    "TruncToInt": _identity,
}
#: Those that take any number of operands.
_FOLDED: Final = ("Add", "Mul", "Max", "Min")


class Symbols:
    """The values of the symbols of a program."""

    def __init__(self) -> None:
        self._dims: dict[Any, Expr] = {}

    def __contains__(self, symbol: Any) -> bool:
        return symbol in self._dims

    def bind(self, symbol: Any, dim: Dim) -> None:
        """Bind a symbol to a dimension."""
        self._dims[symbol] = as_expr(dim)

    def bind_shape(self, sizes: Any, shape: tuple[Expr, ...]) -> None:
        """Bind symbols that first appear in a shape to its dimensions."""
        for size, dim in zip(sizes, shape, strict=False):
            expr = expression(size)
            if expr is not None and expr.is_Symbol and expr not in self._dims:
                self._dims[expr] = dim

    def knows(self, size: Any) -> bool:
        """Whether all symbols of a size are bound."""
        expr = expression(size)
        return expr is None or all(s in self._dims for s in expr.free_symbols)

    def dim(self, size: Any) -> Dim:
        """A size as a number, or as an expression over dimensions."""
        expr = expression(size)
        if expr is None:
            return int(size)
        return int(expr) if expr.is_Integer else self._translated(expr)

    def _translated(self, expr: Any) -> Expr:
        if expr.is_Integer or (expr.is_Float and expr == int(expr)):
            return as_expr(int(expr))
        if expr.is_Symbol:
            if expr not in self._dims:
                raise UserError(f"the size {expr} is used before anything determines it")
            return self._dims[expr]
        name = type(expr).__name__
        if name == "CeilToInt" and type(expr.args[0]).__name__ == "IntTrueDiv":
            return _ceil_div(*map(self._translated, expr.args[0].args))
        if name in ("Pow", "PowByNatural") and expr.args[1].is_Integer and int(expr.args[1]) >= 0:
            return self._power(expr.args[0], int(expr.args[1]))
        if name not in _FUNCTIONS:
            raise UserError(f"a size is {expr}", reason=f"{name} of sizes is not known here")
        operands = list(map(self._translated, expr.args))
        function = _FUNCTIONS[name]
        return reduce(function, operands) if name in _FOLDED else function(*operands)

    def _power(self, base: Any, exponent: int) -> Expr:
        result = as_expr(1)
        for _ in range(exponent):
            result = result * self._translated(base)
        return result


def expression(size: Any) -> Any:
    """The sympy expression of a symbolic size; None for a number."""
    if isinstance(size, int):
        return None
    node = getattr(size, "node", None)
    if node is None:
        return size
    constant = node.maybe_as_int()
    return node.expr if constant is None else None
