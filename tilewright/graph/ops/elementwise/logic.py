"""Comparisons, logic and classification: the results are truth values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.binary import BinaryRow, declare_binary
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.ir import Expr, binary
from tilewright.tensor import te


def _comparison(name: str) -> Callable[[Expr, Expr], Expr]:
    def compare(a: Expr, b: Expr) -> Expr:
        return binary(name, a, b)

    return compare


LOGIC: dict[str, BinaryRow] = {
    "equal": BinaryRow(np.equal, _comparison("eq"), "any"),
    "not_equal": BinaryRow(np.not_equal, _comparison("ne"), "any"),
    "less": BinaryRow(np.less, _comparison("lt")),
    "less_equal": BinaryRow(np.less_equal, _comparison("le")),
    "greater": BinaryRow(np.greater, _comparison("gt")),
    "greater_equal": BinaryRow(np.greater_equal, _comparison("ge")),
    "logical_and": BinaryRow(np.logical_and, lambda a, b: a & b, "bool"),
    "logical_or": BinaryRow(np.logical_or, lambda a, b: a | b, "bool"),
    "logical_xor": BinaryRow(np.logical_xor, _comparison("ne"), "bool"),
}
for _name, _row in LOGIC.items():
    declare_binary(_name, _row, result="bool")


@op
def isnan(x: Value) -> Type:
    """Whether each element is not a number."""
    require_kind("float", x)
    return TensorType("bool", x.shape)


@isnan.reference
def isnan_reference(x: Array) -> Array:
    return np.isnan(x)


@isnan.compute
def isnan_compute(x: te.Tensor) -> te.Tensor:
    return mapped(te.isnan, x, name="isnan")


@op
def isfinite(x: Value) -> Type:
    """Whether each element is a number and no infinity."""
    require_kind("float", x)
    return TensorType("bool", x.shape)


@isfinite.reference
def isfinite_reference(x: Array) -> Array:
    return np.isfinite(x)


@isfinite.compute
def isfinite_compute(x: te.Tensor) -> te.Tensor:
    return mapped(te.isfinite, x, name="isfinite")


@op
def isinf(x: Value, *, positive: bool = True, negative: bool = True) -> Type:
    """Whether each element is an infinity of one of these signs."""
    require_kind("float", x)
    return TensorType("bool", x.shape)


@isinf.reference
def isinf_reference(x: Array, *, positive: bool, negative: bool) -> Array:
    return np.isinf(x) & (((x > 0) & positive) | ((x < 0) & negative))


@isinf.compute
def isinf_compute(x: te.Tensor, *, positive: bool, negative: bool) -> te.Tensor:
    def classify(e: Expr) -> Expr:
        sign = te.any_of(*[e > 0] * positive, *[e < 0] * negative)
        return te.isinf(e) & sign

    return mapped(classify, x, name="isinf")
