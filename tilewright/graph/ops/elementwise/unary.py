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
from tilewright.ir import DType, Expr
from tilewright.tensor import te

_FLOAT32 = DType.of("float32")
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class UnaryRow:
    """One operator: NumPy's function, the formula for an element, its element types."""

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


def _rounded_away(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= x.dtype.type(0.5), np.sign(x), x.dtype.type(0))


def _round_away(e: Expr) -> Expr:
    """Adds the number below one half and truncates: that takes only halves to the next integer, as
    their sums with it are rounded to even."""
    work = e.dtype if e.dtype.bits >= _FLOAT32.bits else _FLOAT32
    kind = work.numpy.type
    half = float(np.nextafter(kind(0.5), kind(0)))
    wide = te.cast(e, work)
    nearer = te.select(wide < 0, te.const(-half, work), te.const(half, work))
    return te.cast(te.trunc(wide + nearer), e.dtype)


UNARY: dict[str, UnaryRow] = {
    "identity": UnaryRow(np.copy, _itself, "any"),
    "abs": UnaryRow(np.abs, lambda e: te.abs(e) if e.dtype.is_signed else e, "number"),
    "neg": UnaryRow(np.negative, lambda e: -e, "number"),
    "sign": UnaryRow(np.sign, _sign, "number"),
    "relu": UnaryRow(
        lambda x: np.maximum(x, x.dtype.type(0)), lambda e: te.maximum(e, 0), "number"
    ),
    "reciprocal": UnaryRow(lambda x: x.dtype.type(1) / x, lambda e: 1.0 / e),
    "sqrt": UnaryRow(np.sqrt, te.sqrt),
    "rsqrt": UnaryRow(lambda x: x.dtype.type(1) / np.sqrt(x), te.rsqrt),
    "exp": UnaryRow(np.exp, te.exp),
    "exp2": UnaryRow(np.exp2, te.exp2),
    "expm1": UnaryRow(np.expm1, te.expm1),
    "log": UnaryRow(np.log, te.log),
    "log2": UnaryRow(np.log2, te.log2),
    "log10": UnaryRow(np.log10, te.log10),
    "log1p": UnaryRow(np.log1p, te.log1p),
    "sin": UnaryRow(np.sin, te.sin),
    "cos": UnaryRow(np.cos, te.cos),
    "tan": UnaryRow(np.tan, te.tan),
    "asin": UnaryRow(np.arcsin, te.asin),
    "acos": UnaryRow(np.arccos, te.acos),
    "atan": UnaryRow(np.arctan, te.atan),
    "sinh": UnaryRow(np.sinh, te.sinh),
    "cosh": UnaryRow(np.cosh, te.cosh),
    "tanh": UnaryRow(np.tanh, te.tanh),
    "asinh": UnaryRow(np.arcsinh, te.asinh),
    "acosh": UnaryRow(np.arccosh, te.acosh),
    "atanh": UnaryRow(np.arctanh, te.atanh),
    "erf": UnaryRow(_erf_of, te.erf),
    "sigmoid": UnaryRow(_sigmoid, te.sigmoid),
    #: Within 2**-12, for results that are rounded to bytes.
    "coarse_sigmoid": UnaryRow(_sigmoid, te.coarse_sigmoid),
    "floor": UnaryRow(np.floor, te.floor),
    "ceil": UnaryRow(np.ceil, te.ceil),
    "round": UnaryRow(np.rint, te.round),
    "round_away": UnaryRow(_rounded_away, _round_away),
    "trunc": UnaryRow(np.trunc, te.trunc),
    "logical_not": UnaryRow(np.logical_not, te.logical_not, "bool"),
    "bitwise_not": UnaryRow(np.invert, lambda e: ~e, "integer"),
}


def _declare(name: str, row: UnaryRow) -> OpDef:
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
