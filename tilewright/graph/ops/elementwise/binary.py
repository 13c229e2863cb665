"""Arithmetic on two tensors that are broadcast, one row per operator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import OpDef, op
from tilewright.graph.ir.types import Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import (
    broadcast_type,
    map_known,
    mapped,
    require_kind,
    require_same_dtype,
)
from tilewright.ir import Expr
from tilewright.tensor import te


@dataclass(frozen=True, slots=True)
class BinaryRow:
    """One operator: NumPy's function, the formula for an element, its element types."""

    reference: Callable[[Any, Any], Any]
    formula: Callable[[Expr, Expr], Expr]
    kind: str = "number"


def _divide(a: Array, b: Array) -> Array:
    """Floats divide; integers round to zero, and divisions by zero give zero."""
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    quotient = a // b
    inexact = (a - quotient * b != 0) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0)))


def _divided(a: Expr, b: Expr) -> Expr:
    return a / b if a.dtype.is_float else te.truncdiv(a, b)


def _floor_divided(a: Expr, b: Expr) -> Expr:
    return te.floor(a / b) if a.dtype.is_float else te.floordiv(a, b)


def _floor_divide(a: Array, b: Array) -> Array:
    return a // b if np.issubdtype(a.dtype, np.integer) else np.floor(a / b)


BINARY: dict[str, BinaryRow] = {
    "add": BinaryRow(np.add, operator.add),
    "sub": BinaryRow(np.subtract, operator.sub),
    "mul": BinaryRow(np.multiply, operator.mul),
    "div": BinaryRow(_divide, _divided),
    "floor_div": BinaryRow(_floor_divide, _floor_divided),
    "maximum": BinaryRow(np.maximum, te.maximum),
    "minimum": BinaryRow(np.minimum, te.minimum),
    "atan2": BinaryRow(np.arctan2, te.atan2, "float"),
    "bitwise_and": BinaryRow(np.bitwise_and, lambda a, b: a & b, "integer"),
    "bitwise_or": BinaryRow(np.bitwise_or, lambda a, b: a | b, "integer"),
    "bitwise_xor": BinaryRow(np.bitwise_xor, lambda a, b: a ^ b, "integer"),
}


def declare_binary(name: str, row: BinaryRow, result: str | None = None) -> OpDef:
    """An operator on two tensors of one element type; `result` is its result's, if it differs."""

    def infer(a: Value, b: Value) -> Type:
        require_kind(row.kind, a, b)
        require_same_dtype(a, b)
        return broadcast_type(result or a.dtype, a, b)

    infer.__name__, infer.__doc__ = name, f"{name}(a, b), elementwise and broadcast."
    declared = op(infer)

    @declared.reference
    def reference(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(row.reference(a, b)).astype(result or a.dtype, copy=False)

    @declared.compute
    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return mapped(row.formula, a, b, name=name)

    @declared.symbolic
    def symbolic(a: Value, b: Value) -> Array | None:
        return map_known(row.formula, a, b)

    del reference, compute, symbolic
    declared.layouts(elementwise_layouts)
    return declared


for _name, _row in BINARY.items():
    declare_binary(_name, _row)
