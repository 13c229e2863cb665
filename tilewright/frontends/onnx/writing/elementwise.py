"""Elementwise operators."""

from __future__ import annotations

from typing import Final

from tilewright.frontends.onnx.element_types import onnx_number
from tilewright.frontends.onnx.writing.table import operand, writes
from tilewright.frontends.onnx.writing.writer import Writer
from tilewright.graph import Call
from tilewright.support.errors import UserError

#: Operators that are one node on the same operands, without attributes.
_SAME: Final = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_and": "BitwiseAnd",
    "bitwise_not": "BitwiseNot",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "ceil": "Ceil",
    "clip": "Clip",
    "cos": "Cos",
    "cosh": "Cosh",
    "div": "Div",
    "equal": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "identity": "Identity",
    "isnan": "IsNaN",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "log": "Log",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "maximum": "Max",
    "minimum": "Min",
    "mish": "Mish",
    "mul": "Mul",
    "neg": "Neg",
    "pow": "Pow",
    "prelu": "PRelu",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
}
#: Operators whose attributes have the same names and meaning.
_SAME_ATTRIBUTES: Final = {
    "celu": "Celu",
    "elu": "Elu",
    "gelu": "Gelu",
    "hard_sigmoid": "HardSigmoid",
    "leaky_relu": "LeakyRelu",
    "selu": "Selu",
    "shrink": "Shrink",
    "thresholded_relu": "ThresholdedRelu",
}


@writes(*_SAME)
def same(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node(_SAME[call.op.name], w.arguments(call), outputs)


@writes(*_SAME_ATTRIBUTES)
def same_attributes(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node(_SAME_ATTRIBUTES[call.op.name], w.arguments(call), outputs, **call.attrs)


@writes("dropout")
def dropout(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Identity", w.arguments(call), outputs)


@writes("not_equal")
def not_equal(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Not", [w.node("Equal", w.arguments(call))], outputs)


@writes("mod")
def mod(w: Writer, call: Call, outputs: list[str]) -> None:
    if operand(call, 0).dtype.is_float and not call.attrs["fmod"]:
        raise UserError("cannot write mod of floats to ONNX", reason="it has only C's fmod")
    w.node("Mod", w.arguments(call), outputs, fmod=int(call.attrs["fmod"]))


@writes("rsqrt")
def rsqrt(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Reciprocal", [w.node("Sqrt", w.arguments(call))], outputs)


@writes("gelu_erf", "gelu_tanh")
def gelu(w: Writer, call: Call, outputs: list[str]) -> None:
    form = "tanh" if call.op.name == "gelu_tanh" else "none"
    w.node("Gelu", w.arguments(call), outputs, approximate=form)


@writes("swish", "gelu_quick")
def swish(w: Writer, call: Call, outputs: list[str]) -> None:
    """x · sigmoid(alpha · x)"""
    x, alpha = operand(call, 0), call.attrs["alpha"]
    inner = w.name(x)
    if alpha != 1:
        inner = w.node("Mul", [inner, w.scalar(alpha, x.dtype)])
    w.node("Mul", [w.name(x), w.node("Sigmoid", [inner])], outputs)


@writes("hard_swish")
def hard_swish(w: Writer, call: Call, outputs: list[str]) -> None:
    inner = w.node("HardSigmoid", w.arguments(call), **call.attrs)
    w.node("Mul", [w.name(operand(call, 0)), inner], outputs)


@writes("cast")
def cast(w: Writer, call: Call, outputs: list[str]) -> None:
    saturate = None if call.attrs["saturate"] else 0
    number = onnx_number(call.attrs["dtype"])
    w.node("Cast", w.arguments(call), outputs, to=number, saturate=saturate)


@writes("isinf")
def isinf(w: Writer, call: Call, outputs: list[str]) -> None:
    signs = {f"detect_{s}": int(call.attrs[s]) for s in ("positive", "negative")}
    w.node("IsInf", w.arguments(call), outputs, **signs)


@writes("floor_div")
def floor_div(w: Writer, call: Call, outputs: list[str]) -> None:
    """(a - a mod b) / b, since ONNX rounds quotients of integers towards zero"""
    a, b = w.arguments(call)
    if not operand(call, 0).dtype.is_integer:
        w.node("Floor", [w.node("Div", [a, b])], outputs)
        return
    w.node("Div", [w.node("Sub", [a, w.node("Mod", [a, b])]), b], outputs)


@writes("require")
def require(w: Writer, call: Call, outputs: list[str]) -> None:
    raise UserError(
        "cannot write a check of sizes to ONNX",
        reason="; ".join(call.attrs["messages"]),
        remedy="fix the shapes of the inputs with shapes=",
    )
