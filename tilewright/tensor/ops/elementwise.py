"""One element from the elements at the same place."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal

from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.extents import broadcast_index, broadcast_shape


def elementwise(
    function: Callable[..., Any], *tensors: te.Tensor, name: str = "elementwise"
) -> te.Tensor:
    """`function` of the elements of all tensors, broadcast against each other as in NumPy."""
    shape = broadcast_shape(name, [t.shape for t in tensors])

    def element(*i: Expr) -> Any:
        return function(*(t[broadcast_index(t.shape, i)] for t in tensors))

    return te.compute(shape, element, name=name)


def add(a: te.Tensor, b: te.Tensor, name: str = "add") -> te.Tensor:
    """The sum of two tensors, broadcast."""
    return elementwise(operator.add, a, b, name=name)


def scaled(x: te.Tensor, divisor: Any, name: str = "scaled") -> te.Tensor:
    """Every element divided by the same scalar."""

    def quotient(e: Expr) -> Expr:
        return e / divisor

    return elementwise(quotient, x, name=name)


def relu(x: te.Tensor, name: str = "relu") -> te.Tensor:
    """The positive part; NaN stays."""
    return elementwise(_positive_part, x, name=name)


def gelu(
    x: te.Tensor, approximate: Literal["none", "tanh"] = "none", name: str = "gelu"
) -> te.Tensor:
    """x · Φ(x), by the error function or by the usual approximation of it through tanh."""
    functions = {"none": _gelu_erf, "tanh": _gelu_tanh}
    if approximate not in functions:
        raise UserError(f"gelu has no approximation {approximate!r}", remedy="use none or tanh")
    return elementwise(functions[approximate], x, name=name)


def _positive_part(x: Expr) -> Expr:
    return te.maximum(x, 0)


def _gelu_erf(x: Expr) -> Expr:
    return x * 0.5 * (te.erf(x * math.sqrt(0.5)) + 1.0)


def _gelu_tanh(x: Expr) -> Expr:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (te.tanh(inner) + 1.0)
