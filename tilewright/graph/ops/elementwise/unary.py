"""Elementwise functions of one tensor, one row each: reference, formula, element types."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import OpDef, op
from tilewright.graph.ir.types import Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import map_known, mapped, require_kind
from tilewright.ir import Expr
from tilewright.tensor import te

_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class Unary:
    """One operator: NumPy's function, the formula for an element, what it applies to."""

    reference: Callable[[Any], Any]
    formula: Callable[[Expr], Expr]
    kind: str = "float"


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _erf_of(x: Array) -> Array:
    return _erf(x.astype(np.float64)).astype(x.dtype)


def _itself(e: Expr) -> Expr:
    return e


def _sign(e: Expr) -> Expr:
    # NaN compares false with both, and stays NaN.
    zero_or_nan = te.select(e < 0, te.const(-1, e.dtype), e) if e.dtype.is_signed else e
    return te.select(e > 0, te.const(1, e.dtype), zero_or_nan)


UNARY: dict[str, Unary] = {
    "identity": Unary(np.copy, _itself, "any"),
    "abs": Unary(np.abs, lambda e: te.abs(e) if e.dtype.is_signed else e, "number"),
    "neg": Unary(np.negative, lambda e: -e, "number"),
    "sign": Unary(np.sign, _sign, "number"),
    "relu": Unary(lambda x: np.maximum(x, x.dtype.type(0)), lambda e: te.maximum(e, 0), "number"),
    "reciprocal": Unary(lambda x: x.dtype.type(1) / x, lambda e: 1.0 / e),
    "sqrt": Unary(np.sqrt, te.sqrt),
    "rsqrt": Unary(lambda x: x.dtype.type(1) / np.sqrt(x), te.rsqrt),
    "exp": Unary(np.exp, te.exp),
    "exp2": Unary(np.exp2, te.exp2),
    "expm1": Unary(np.expm1, te.expm1),
    "log": Unary(np.log, te.log),
    "log2": Unary(np.log2, te.log2),
    "log10": Unary(np.log10, te.log10),
    "log1p": Unary(np.log1p, te.log1p),
    "sin": Unary(np.sin, te.sin),
    "cos": Unary(np.cos, te.cos),
    "tan": Unary(np.tan, te.tan),
    "asin": Unary(np.arcsin, te.asin),
    "acos": Unary(np.arccos, te.acos),
    "atan": Unary(np.arctan, te.atan),
    "sinh": Unary(np.sinh, te.sinh),
    "cosh": Unary(np.cosh, te.cosh),
    "tanh": Unary(np.tanh, te.tanh),
    "asinh": Unary(np.arcsinh, te.asinh),
    "acosh": Unary(np.arccosh, te.acosh),
    "atanh": Unary(np.arctanh, te.atanh),
    "erf": Unary(_erf_of, te.erf),
    "sigmoid": Unary(_sigmoid, te.sigmoid),
    "floor": Unary(np.floor, te.floor),
    "ceil": Unary(np.ceil, te.ceil),
    "round": Unary(np.rint, te.round),
    "trunc": Unary(np.trunc, te.trunc),
    "logical_not": Unary(np.logical_not, te.logical_not, "bool"),
    "bitwise_not": Unary(np.invert, lambda e: ~e, "integer"),
}


def _declare(name: str, row: Unary) -> OpDef:
    def infer(x: Value) -> Type:
        require_kind(row.kind, x)
        return x.type

    infer.__name__, infer.__doc__ = name, f"{name}(x), elementwise."
    declared = op(infer)

    @declared.reference
    def reference(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(row.reference(x)).astype(x.dtype, copy=False)

    @declared.compute
    def compute(x: te.Tensor) -> te.Tensor:
        return mapped(row.formula, x, name=name)

    @declared.symbolic
    def symbolic(x: Value) -> Array | None:
        return map_known(row.formula, x)

    del reference, compute, symbolic
    declared.layouts(elementwise_layouts)
    return declared


for _name, _row in UNARY.items():
    _declare(_name, _row)


@op
def dropout(x: Value, *, ratio: float = 0.5) -> Type:
    """What dropout is when a model is only run: `x`."""
    del ratio
    return x.type


@dropout.reference
def dropout_reference(x: Array, *, ratio: float) -> Array:
    del ratio
    return x.copy()


@dropout.compute
def dropout_compute(x: te.Tensor, *, ratio: float) -> te.Tensor:
    del ratio
    return mapped(_itself, x, name="dropout")
