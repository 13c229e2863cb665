"""Elementwise operators, activations, comparisons, casts."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, Final

import numpy as np

from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import TABLE, converts
from tilewright.graph import Value

#: TensorFlow's operators that the graph has under other names.
_SAME: Final = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "AddV2": "add",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atan2": "atan2",
    "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Div": "div",
    "Elu": "elu",
    "Erf": "erf",
    "Exp": "exp",
    "Expm1": "expm1",
    "Floor": "floor",
    "FloorDiv": "floor_div",
    "FloorMod": "mod",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Inv": "reciprocal",
    "Invert": "bitwise_not",
    "IsFinite": "isfinite",
    "IsInf": "isinf",
    "IsNan": "isnan",
    "LeftShift": "left_shift",
    "Less": "less",
    "LessEqual": "less_equal",
    "Log": "log",
    "Log1p": "log1p",
    "LogicalAnd": "logical_and",
    "LogicalNot": "logical_not",
    "LogicalOr": "logical_or",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mul": "mul",
    "Neg": "neg",
    "NotEqual": "not_equal",
    "Equal": "equal",
    "Pow": "pow",
    "RealDiv": "div",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "RightShift": "right_shift",
    "Rint": "round",
    "Round": "round",
    "Rsqrt": "rsqrt",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Sub": "sub",
    "Tan": "tan",
    "Tanh": "tanh",
    "TruncateDiv": "div",
}


def _declare(name: str, op: str) -> None:
    TABLE.add(name, lambda n: n.builder.emit(op, *n.all))


for _name, _op in _SAME.items():
    _declare(_name, _op)


@converts("AddN", "AccumulateNV2")
def add_all(n: Node) -> Value:
    return reduce(lambda a, b: a + b, n.all)


@converts("BiasAdd", "BiasAddV1")
def bias_add(n: Node) -> Value:
    x, bias = n[0], n[1]
    if n.is_channels_first and x.ndim > 2:
        bias = n.builder.unsqueeze(bias, axes=list(range(1, x.ndim - 1)))
    return x + bias


@converts("TruncateMod", "Mod")
def truncated_mod(n: Node) -> Value:
    return n.builder.mod(n[0], n[1], fmod=True)


@converts("Square")
def square(n: Node) -> Value:
    return n[0] * n[0]


@converts("SquaredDifference")
def squared_difference(n: Node) -> Value:
    difference = n[0] - n[1]
    return difference * difference


@converts("DivNoNan", "Xdivy")
def division_by_zero_is_zero(n: Node) -> Value:
    """Zero where the divisor is zero; of x / y where x is."""
    b, (x, y) = n.builder, n.all
    decides = y if n.op == "DivNoNan" else x
    is_zero = b.equal(decides, n.scalar(0, decides))
    return b.where(is_zero, n.scalar(0, x), b.div(x, y))


@converts("MulNoNan", "Xlogy", "Xlog1py")
def product_with_zero_is_zero(n: Node) -> Value:
    b, (x, y) = n.builder, n.all
    decides = y if n.op == "MulNoNan" else x
    factor = y if n.op == "MulNoNan" else b.emit(n.op[1:].removesuffix("y"), y)
    return b.where(b.equal(decides, n.scalar(0, decides)), n.scalar(0, x), x * factor)


@converts("LogicalXor")
def logical_xor(n: Node) -> Value:
    return n.builder.logical_xor(n[0], n[1])


@converts("ApproximateEqual")
def approximate_equal(n: Node) -> Value:
    difference = n.builder.abs(n[0] - n[1])
    return n.builder.less(difference, n.scalar(n.real("tolerance", 1e-5), n[0]))


@converts("Erfc")
def erfc(n: Node) -> Value:
    return n.scalar(1, n[0]) - n.builder.erf(n[0])


@converts("ClipByValue")
def clip(n: Node) -> Value:
    low, high = n[1], n[2]
    if low.ndim or high.ndim:
        return n.builder.minimum(n.builder.maximum(n[0], low), high)
    return n.builder.clip(n[0], low, high)


@converts("Cast", "Bitcast")
def cast(n: Node) -> Value:
    if n.op == "Bitcast":
        return n.builder.bitcast(n[0], dtype=n.dtype("type"))
    return n.builder.cast(n[0], dtype=n.dtype("DstT"))


@converts("Select", "SelectV2")
def select(n: Node) -> Value:
    condition, a, b = n.all
    if n.op == "Select" and condition.ndim == 1 and a.ndim > 1:
        # A vector selects whole rows.
        condition = n.builder.unsqueeze(condition, axes=list(range(1, a.ndim)))
    return n.builder.where(condition, a, b)


# ---- activations --------------------------------------------------------------------------------


@converts("Relu6")
def relu6(n: Node) -> Value:
    return n.builder.clip(n[0], n.scalar(0, n[0]), n.scalar(6, n[0]))


@converts("LeakyRelu")
def leaky_relu(n: Node) -> Value:
    return n.builder.leaky_relu(n[0], alpha=n.real("alpha", 0.2))


@converts("Selu")
def selu(n: Node) -> Value:
    return n.builder.selu(n[0])


@converts("Softmax", "LogSoftmax")
def softmax(n: Node) -> Value:
    return n.builder.emit("softmax" if n.op == "Softmax" else "log_softmax", n[0], axis=-1)


@converts("_FusedMatMulGelu", "Gelu")
def gelu(n: Node) -> Value:
    return n.builder.gelu(n[0], approximate="tanh" if n.flag("approximate", True) else "none")


@converts("L2Loss")
def l2_loss(n: Node) -> Value:
    return n.builder.sum(n[0] * n[0]) * 0.5


# ---- numbers that are made ----------------------------------------------------------------------


@converts("ZerosLike", "OnesLike")
def filled_like(n: Node) -> Value:
    number = 0 if n.op == "ZerosLike" else 1
    return n.builder.full(n.scalar(number, n[0]), shape=n[0].shape)


@converts("Fill")
def fill(n: Node) -> Value:
    return n.builder.full(n[1], shape=n.dims(0))


@converts("Range")
def range_(n: Node) -> Value:
    known = [n.find_array(k) for k in range(3)]
    if all(k is not None for k in known):
        start, limit, delta = (k.item() for k in known if k is not None)
        size = max(math.ceil((limit - start) / delta), 0) if delta else 0
        if size <= 1 << 16:
            numbers: Any = np.arange(size) * delta + start
            return n.constant(numbers.astype(n[0].dtype.numpy), n[0].dtype)
    if n[0].dtype.is_integer and known[0] is not None and known[2] is not None:
        # If the first number and the step are known, the size is a formula of the limit.
        step = int(known[2])
        if step > 0:
            size = (n.dim(1) - int(known[0]) + (step - 1)) // step
            return n.builder.ramp(n[0], n[2], size=size)
    return n.builder.range(n[0], n[1], n[2])


@converts("LinSpace")
def lin_space(n: Node) -> Value:
    count = n.number(2)
    start, stop = n[0], n[1]
    if count == 1:
        return n.builder.reshape(start, shape=[1])
    step = (stop - start) / n.scalar(count - 1, start)
    return n.builder.ramp(start, step, size=count)
