"""Activations, one row each: parameters with their defaults, reference, formula for an element.

Functions in `unary` (relu, sigmoid, tanh, erf) are not repeated here. Narrow floats are computed in
float32: several steps in float16 would lose too much.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import OpDef, op
from tilewright.graph.ir.types import Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind, require_same_dtype
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.broadcast import require_broadcast_to
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

_erf = np.vectorize(math.erf, otypes=[np.float64])


_Reference = (
    Callable[[Array], Any] | Callable[[Array, float], Any] | Callable[[Array, float, float], Any]
)
_Formula = (
    Callable[[Expr], Expr] | Callable[[Expr, float], Expr] | Callable[[Expr, float, float], Expr]
)


@dataclass(frozen=True)
class Activation:
    """The reference of (float64 array, parameters) and the formula of (element, parameters)."""

    parameters: dict[str, float]
    reference: _Reference
    formula: _Formula
    doc: str = ""


def _positive(e: Expr, otherwise: Expr) -> Expr:
    return te.select(e > 0, e, otherwise)


def _softplus(e: Expr) -> Expr:
    # log1p of a power that cannot overflow; the maximum propagates NaN.
    return te.maximum(e, 0) + te.log1p(te.exp(-te.abs(e)))


def _softplus_reference(x: Array) -> Array:
    return np.logaddexp(0, x)


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


def _gelu_tanh(e: Expr) -> Expr:
    inner = (e + e * e * e * 0.044715) * math.sqrt(2 / math.pi)
    return e * 0.5 * (te.tanh(inner) + 1.0)


def _celu(e: Expr, alpha: float) -> Expr:
    return te.maximum(e, 0) + te.minimum(te.expm1(e / alpha) * alpha, 0)


def _shrink(e: Expr, lambd: float, bias: float) -> Expr:
    zero = te.const(0, e.dtype)
    return te.select(e < -lambd, e + bias, te.select(e > lambd, e - bias, zero))


def _shrink_reference(x: Array, lambd: float, bias: float) -> Array:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _swish(e: Expr, alpha: float) -> Expr:
    return e * te.sigmoid(e if alpha == 1.0 else e * alpha)


ACTIVATIONS: dict[str, Activation] = {
    "leaky_relu": Activation(
        {"alpha": 0.01},
        lambda x, alpha: np.where(x > 0, x, x * alpha),
        lambda e, alpha: _positive(e, e * alpha),
        "x where it is positive, alpha * x elsewhere.",
    ),
    "thresholded_relu": Activation(
        {"alpha": 1.0},
        lambda x, alpha: np.where(x > alpha, x, 0),
        lambda e, alpha: te.select(e > alpha, e, te.const(0, e.dtype)),
        "x where it is greater than alpha, 0 elsewhere.",
    ),
    "elu": Activation(
        {"alpha": 1.0},
        lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
        lambda e, alpha: _positive(e, te.expm1(e) * alpha),
        "x where it is positive, alpha * (exp(x) - 1) elsewhere.",
    ),
    "selu": Activation(
        {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
        lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
        lambda e, alpha, gamma: _positive(e, te.expm1(e) * alpha) * gamma,
        "gamma * elu(x, alpha).",
    ),
    "celu": Activation(
        {"alpha": 1.0},
        lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
        _celu,
        "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).",
    ),
    "hard_sigmoid": Activation(
        {"alpha": 1 / 6, "beta": 0.5},
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        lambda e, alpha, beta: te.clip(e * alpha + beta, 0, 1),
        "alpha * x + beta, clamped to 0 and 1.",
    ),
    "hard_swish": Activation(
        {"alpha": 1 / 6, "beta": 0.5},
        lambda x, alpha, beta: x * np.clip(alpha * x + beta, 0, 1),
        lambda e, alpha, beta: e * te.clip(e * alpha + beta, 0, 1),
        "x * hard_sigmoid(x).",
    ),
    "softplus": Activation({}, _softplus_reference, _softplus, "log(1 + exp(x))."),
    "softsign": Activation(
        {}, lambda x: x / (1 + np.abs(x)), lambda e: e / (te.abs(e) + 1), "x / (1 + |x|)."
    ),
    "mish": Activation(
        {},
        lambda x: x * np.tanh(_softplus_reference(x)),
        lambda e: e * te.tanh(_softplus(e)),
        "x * tanh(softplus(x)).",
    ),
    "swish": Activation(
        {"alpha": 1.0}, lambda x, alpha: x * _sigmoid(alpha * x), _swish, "x * sigmoid(alpha * x)."
    ),
    "log_sigmoid": Activation(
        {}, lambda x: -_softplus_reference(-x), lambda e: -_softplus(-e), "log(sigmoid(x))."
    ),
    "gelu_erf": Activation(
        {},
        lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
        lambda e: e * 0.5 * (te.erf(e * math.sqrt(0.5)) + 1.0),
        "x * Φ(x), by the error function.",
    ),
    "gelu_tanh": Activation(
        {},
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        _gelu_tanh,
        "x * Φ(x), by the usual approximation through tanh.",
    ),
    "gelu_quick": Activation(
        {"alpha": 1.702},
        lambda x, alpha: x * _sigmoid(alpha * x),
        _swish,
        "x * sigmoid(alpha * x): the coarser approximation of x * Φ(x).",
    ),
    "shrink": Activation(
        {"lambd": 0.5, "bias": 0.0},
        _shrink_reference,
        _shrink,
        "x + bias below -lambd, x - bias above lambd, 0 between.",
    ),
}


def _signature(row: Activation) -> inspect.Signature:
    """(x: Value, *, alpha: float = …): the signature from which the operator is declared."""
    x = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Value")
    named = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d, annotation="float")
        for n, d in row.parameters.items()
    ]
    return inspect.Signature([x, *named])


def apply_activation(name: str, e: Expr, parameters: dict[str, float]) -> Expr:
    """The formula of an activation for one element, computed in float32 at least."""
    work, formula = accumulator(e.dtype), _any(ACTIVATIONS[name].formula)
    return te.cast(formula(te.cast(e, work), **parameters), e.dtype)


def _any(function: Any) -> Callable[..., Any]:
    """A function whose parameters are those of its table row."""
    return function


def _declare(name: str, row: Activation) -> OpDef:
    def infer(x: Value, **_parameters: float) -> Type:
        require_kind("float", x)
        return x.type

    infer.__name__, infer.__doc__ = name, row.doc
    infer.__signature__ = _signature(row)  # type: ignore[attr-defined]
    declared, reference_of = op(infer), _any(row.reference)

    @declared.reference
    def reference(x: Array, **parameters: float) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(reference_of(x.astype(np.float64), **parameters)).astype(x.dtype)

    @declared.compute
    def compute(x: te.Tensor, **parameters: float) -> te.Tensor:
        return mapped(lambda e: apply_activation(name, e, parameters), x, name=name)

    del reference, compute
    declared.layouts(elementwise_layouts)
    return declared


for _name, _row in ACTIVATIONS.items():
    _declare(_name, _row)


# ---- those with operands of their own -----------------------------------------------------------

_GELU = {"none": "gelu_erf", "tanh": "gelu_tanh"}


@op
def gelu(x: Value, *, approximate: str = "none") -> Type:
    """x * Φ(x); `approximate` is none (the error function) or tanh."""
    require_kind("float", x)
    if approximate not in _GELU:
        raise UserError(f"gelu has no approximation {approximate!r}", remedy="use none or tanh")
    return x.type


@gelu.reference
def gelu_reference(x: Array, *, approximate: str) -> Array:
    with np.errstate(all="ignore"):
        reference = _any(ACTIVATIONS[_GELU[approximate]].reference)
        return reference(x.astype(np.float64)).astype(x.dtype)


@gelu.compute
def gelu_compute(x: te.Tensor, *, approximate: str) -> te.Tensor:
    return mapped(lambda e: apply_activation(_GELU[approximate], e, {}), x, name="gelu")


@op
def prelu(x: Value, slope: Value) -> Type:
    """x where it is not negative, slope * x elsewhere; the slope is broadcast to x."""
    require_kind("number", x, slope)
    require_same_dtype(x, slope)
    require_broadcast_to(x.shape, slope.shape, "the slope")
    return x.type


@prelu.reference
def prelu_reference(x: Array, slope: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(x < 0, x * slope, x).astype(x.dtype)


@prelu.compute
def prelu_compute(x: te.Tensor, slope: te.Tensor) -> te.Tensor:
    return mapped(lambda e, s: te.select(e < 0, e * s, e), x, slope, shape=x.shape, name="prelu")


@op
def clip(x: Value, low: Value | None = None, high: Value | None = None) -> Type:
    """x clamped to the scalars low and high, either of which may be missing; high wins."""
    require_kind("number", x)
    for bound in (low, high):
        if bound is None:
            continue
        require_same_dtype(x, bound)
        if bound.tensor.size != 1:
            raise UserError(f"clip takes a scalar, not {bound}")
    return x.type


@clip.reference
def clip_reference(x: Array, low: Array | None, high: Array | None) -> Array:
    x = x if low is None else np.maximum(x, low.reshape(()))
    return np.array(x if high is None else np.minimum(x, high.reshape(())))


@clip.compute
def clip_compute(x: te.Tensor, low: te.Tensor | None, high: te.Tensor | None) -> te.Tensor:
    def element(*i: Expr) -> Expr:
        value: Expr = x[i]
        value = value if low is None else te.maximum(value, low[(0,) * low.ndim])
        return value if high is None else te.minimum(value, high[(0,) * high.ndim])

    return te.compute(x.shape, element, name="clip")


for _op in (gelu, prelu, clip):
    _op.layouts(elementwise_layouts)
