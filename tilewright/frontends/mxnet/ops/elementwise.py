"""Elementwise operators: functions, arithmetic with tensors and numbers, comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from tilewright.frontends.mxnet.node import Node
from tilewright.frontends.mxnet.table import TABLE, converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

# ---- functions ----------------------------------------------------------------------------------

_FUNCTIONS: Final = {
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "fix": "trunc",
    "negative": "neg",
    "_np_copy": "identity",
}
_SAME: Final = (
    "abs ceil cos cosh erf exp expm1 floor log log10 log1p log2 reciprocal relu rsqrt sigmoid sign "
    "sin sinh softsign sqrt tan tanh trunc"
).split()

for _name, _op in (*_FUNCTIONS.items(), *((s, s) for s in _SAME)):
    TABLE.add(_name, lambda n, _op=_op: n.builder.emit(_op, n[0]))


@converts("square")
def square(n: Node) -> Value:
    return n.builder.mul(n[0], n[0])


@converts("round")
def round_(n: Node) -> Value:
    """Halves are rounded away from zero."""
    b, x = n.builder, n[0]
    return b.mul(b.sign(x), b.floor(b.add(b.abs(x), n.scalar(0.5, x))))


@converts("rint")
def rint(n: Node) -> Value:
    """Halves are rounded down."""
    return n.builder.ceil(n.builder.sub(n[0], n.scalar(0.5, n[0])))


@converts("hard_sigmoid")
def hard_sigmoid(n: Node) -> Value:
    alpha, beta = n.real("alpha", 0.2), n.real("beta", 0.5)
    return n.builder.hard_sigmoid(n[0], alpha=alpha, beta=beta)


@converts("smooth_l1")
def smooth_l1(n: Node) -> Value:
    b, x = n.builder, n[0]
    squared = n.real("scalar", 1.0) ** 2
    far = b.sub(b.abs(x), n.scalar(0.5 / squared, x))
    near = b.mul(b.mul(x, x), n.scalar(0.5 * squared, x))
    return b.where(b.less(b.abs(x), n.scalar(1 / squared, x)), near, far)


@converts("clip")
def clip(n: Node) -> Value:
    low, high = n.real("a_min", -math.inf), n.real("a_max", math.inf)
    return n.builder.clip(n[0], n.scalar(low, n[0]), n.scalar(high, n[0]))


@converts("Cast", "cast", "amp_cast")
def cast(n: Node) -> Value:
    dtype = n.dtype("dtype", "float32")
    return n.builder.cast(n[0], dtype=dtype)


@converts("amp_multicast")
def amp_multicast(n: Node) -> list[Value]:
    widest = max((v.dtype for v in n.all), key=lambda d: d.bits)
    return [n.builder.cast(v, dtype=widest) for v in n.all]


@converts(
    "_copy",
    "identity",
    "BlockGrad",
    "stop_gradient",
    "MakeLoss",
    "make_loss",
    "Dropout",
    "IdentityAttachKLSparseReg",
    "_identity_with_attr_like_rhs",
    "LinearRegressionOutput",
    "MAERegressionOutput",
    "SVMOutput",
)
def passed(n: Node) -> Value:
    return n[0]


# ---- arithmetic ---------------------------------------------------------------------------------

_Binary = Callable[[Any, Any, Any], Any]


def _hypot(b: Any, x: Value, y: Value) -> Value:
    return b.sqrt(b.add(b.mul(x, x), b.mul(y, y)))


def _compared(op: str) -> _Binary:
    """Comparisons give numbers of the operands' type."""
    return lambda b, x, y: b.cast(b.emit(op, x, y), dtype=x.dtype)


def _logical(op: str) -> _Binary:
    def compute(b: Any, x: Value, y: Value) -> Value:
        flags = [b.not_equal(v, b.constant(0, v.dtype)) for v in (x, y)]
        return b.cast(b.emit(op, *flags), dtype=x.dtype)

    return compute


#: What is computed, and the names of it: with and without broadcasting, and in old symbols.
_ARITHMETIC: Final[dict[str, tuple[_Binary, str]]] = {
    "add": (lambda b, x, y: b.add(x, y), "elemwise_add _add _plus _Plus broadcast_plus _grad_add"),
    "sub": (lambda b, x, y: b.sub(x, y), "elemwise_sub _sub _minus _Minus broadcast_minus"),
    "mul": (lambda b, x, y: b.mul(x, y), "elemwise_mul _mul _Mul"),
    "div": (lambda b, x, y: b.div(x, y), "elemwise_div _div _Div"),
    "mod": (lambda b, x, y: b.mod(x, y), "_mod _Mod"),
    "power": (lambda b, x, y: b.pow(x, y), "_power _Power"),
    "maximum": (lambda b, x, y: b.maximum(x, y), "_maximum _Maximum"),
    "minimum": (lambda b, x, y: b.minimum(x, y), "_minimum _Minimum"),
    "hypot": (_hypot, "_hypot"),
    "equal": (_compared("equal"), "_equal _Equal"),
    "not_equal": (_compared("not_equal"), "_not_equal _Not_Equal"),
    "greater": (_compared("greater"), "_greater _Greater"),
    "greater_equal": (_compared("greater_equal"), "_greater_equal _Greater_Equal"),
    "lesser": (_compared("less"), "_lesser _Lesser"),
    "lesser_equal": (_compared("less_equal"), "_lesser_equal _Lesser_Equal"),
    "logical_and": (_logical("logical_and"), "_logical_and _Logical_And"),
    "logical_or": (_logical("logical_or"), "_logical_or _Logical_Or"),
    "logical_xor": (_logical("logical_xor"), "_logical_xor _Logical_Xor"),
}

#: Names of operators with a number, and whether the number comes first.
_SCALARS: Final = {
    "add": "_plus_scalar _PlusScalar",
    "sub": "_minus_scalar _MinusScalar _rminus_scalar _RMinusScalar",
    "mul": "_mul_scalar _MulScalar",
    "div": "_div_scalar _DivScalar _rdiv_scalar _RDivScalar",
    "mod": "_mod_scalar _ModScalar _rmod_scalar _RModScalar",
    "power": "_power_scalar _PowerScalar _rpower_scalar _RPowerScalar",
    "maximum": "_maximum_scalar _MaximumScalar",
    "minimum": "_minimum_scalar _MinimumScalar",
    "hypot": "_hypot_scalar _HypotScalar",
    "equal": "_equal_scalar _EqualScalar",
    "not_equal": "_not_equal_scalar _NotEqualScalar",
    "greater": "_greater_scalar _GreaterScalar",
    "greater_equal": "_greater_equal_scalar _GreaterEqualScalar",
    "lesser": "_lesser_scalar _LesserScalar",
    "lesser_equal": "_lesser_equal_scalar _LesserEqualScalar",
    "logical_and": "_logical_and_scalar _LogicalAndScalar",
    "logical_or": "_logical_or_scalar _LogicalOrScalar",
    "logical_xor": "_logical_xor_scalar _LogicalXorScalar",
}


def _declare(compute: _Binary, names: list[str]) -> None:
    for name in names:
        TABLE.add(name, lambda n: compute(n.builder, n[0], n[1]))


def _declare_scalar(compute: _Binary, name: str) -> None:
    is_first = name.lower().startswith("_r")

    def convert(n: Node) -> Value:
        number = n.scalar(n.real("scalar"), n[0])
        pair = (number, n[0]) if is_first else (n[0], number)
        return compute(n.builder, *pair)

    TABLE.add(name, convert)


for _key, (_compute, _names) in _ARITHMETIC.items():
    _declare(_compute, [f"broadcast_{_key}", *_names.split()])
    for _name in _SCALARS[_key].split():
        _declare_scalar(_compute, _name)


@converts("add_n", "ElementWiseSum", "_sum")
def add_n(n: Node) -> Value:
    return reduce(n.builder.add, n.all)


@converts("logical_not")
def logical_not(n: Node) -> Value:
    return n.builder.cast(n.builder.equal(n[0], n.scalar(0, n[0])), dtype=n[0].dtype)


@converts("where")
def where(n: Node) -> Value:
    """By elements, or by the first axis where the condition is a vector."""
    b, condition, x = n.builder, n[0], n[1]
    flags = b.not_equal(condition, n.scalar(0, condition))
    if condition.ndim == 1 < x.ndim:
        flags = b.reshape(flags, shape=[condition.shape[0], *[1] * (x.ndim - 1)])
    return b.where(flags, x, n[2])


# ---- activations --------------------------------------------------------------------------------

_ACTIVATIONS: Final = {
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softrelu": "softplus",
    "softsign": "softsign",
    "log_sigmoid": "log_sigmoid",
    "mish": "mish",
}


@converts("Activation")
def activation(n: Node) -> Value:
    kind = n.text("act_type")
    if kind not in _ACTIVATIONS:
        raise UserError(f"the activation {kind[:40]}", remedy=f"known: {', '.join(_ACTIVATIONS)}")
    return n.builder.emit(_ACTIVATIONS[kind], n[0])


@converts("LeakyReLU")
def leaky_relu(n: Node) -> Value:
    b, x, kind = n.builder, n[0], n.text("act_type", "leaky")
    slope = n.real("slope", 0.25)
    if kind == "prelu":
        gamma = n[1]
        if gamma.ndim == 1 and x.ndim > 2:
            gamma = b.reshape(gamma, shape=[gamma.shape[0], *[1] * (x.ndim - 2)])
        return b.prelu(x, gamma)
    if kind == "rrelu":
        slope = (n.real("lower_bound", 0.125) + n.real("upper_bound", 0.334)) / 2
    if kind in ("leaky", "rrelu"):
        return b.leaky_relu(x, alpha=slope)
    if kind == "elu":
        return b.elu(x, alpha=slope)
    if kind in ("selu", "gelu"):
        return b.emit(kind, x)
    raise UserError(f"the activation {kind[:40]} is not known")
