"""Elementwise arithmetic, comparisons and logic."""

from __future__ import annotations

from typing import Final

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import TABLE, converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

_ONE_OPERAND: Final = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_TWO_OPERANDS: Final = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "div",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "mul",
    "Or": "logical_or",
    "Pow": "pow",
    "Sub": "sub",
    "Xor": "logical_xor",
}


def _declare(name: str, op: str, operands: int) -> None:
    def convert(n: Node) -> Value:
        return n.builder.emit(op, *(n[k] for k in range(operands)))

    def convert_aligned(n: Node) -> Value:
        return n.builder.emit(op, n[0], _aligned(n))

    if operands == 2:
        TABLE.add(name, convert_aligned, until=7)
    TABLE.add(name, convert, since=7 if operands == 2 else 1)


def _aligned(n: Node) -> Value:
    """The second operand, aligned from `axis` on as in versions before 7."""
    a, b = n[0], n[1]
    if not n.flag("broadcast") or not n.has("axis"):
        return b
    axis = n.integer("axis")
    behind = a.ndim - (axis % max(a.ndim, 1)) - b.ndim
    if behind < 0:
        raise UserError(f"{b} cannot be broadcast to {a} from axis {axis}")
    return n.builder.unsqueeze(b, axes=list(range(b.ndim, b.ndim + behind))) if behind else b


for _name, _op in _ONE_OPERAND.items():
    _declare(_name, _op, 1)
for _name, _op in _TWO_OPERANDS.items():
    _declare(_name, _op, 2)


# ---- any number of operands ---------------------------------------------------------------------


def _folded(n: Node, op: str) -> Value:
    result = n[0]
    for operand in n.all[1:]:
        result = n.builder.emit(op, result, operand)
    return result if len(n.inputs) > 1 else n.builder.identity(result)


@converts("Max")
def maximum(n: Node) -> Value:
    return _folded(n, "maximum")


@converts("Min")
def minimum(n: Node) -> Value:
    return _folded(n, "minimum")


@converts("Sum")
def total(n: Node) -> Value:
    return _folded(n, "add")


@converts("Mean")
def mean(n: Node) -> Value:
    sum_ = _folded(n, "add")
    return n.builder.div(sum_, n.scalar(len(n.inputs), sum_))


# ---- with attributes ----------------------------------------------------------------------------


@converts("Mod")
def mod(n: Node) -> Value:
    fmod = n.flag("fmod")
    if not fmod and n.version < 28 and n[0].dtype.is_float:
        raise UserError("Mod of floats", reason="before version 28 it needs fmod=1")
    return n.builder.mod(n[0], n[1], fmod=fmod)


@converts("IsInf")
def isinf(n: Node) -> Value:
    return n.builder.isinf(
        n[0],
        positive=n.flag("detect_positive", True),
        negative=n.flag("detect_negative", True),
    )


@converts("BitShift")
def bit_shift(n: Node) -> Value:
    direction = n.text("direction")
    ops = {"LEFT": "left_shift", "RIGHT": "right_shift"}
    if direction not in ops:
        raise UserError(f"a shift in the direction {direction!r}", remedy="use LEFT or RIGHT")
    return n.builder.emit(ops[direction], n[0], n[1])


@converts("Where")
def where(n: Node) -> Value:
    return n.builder.where(n[0], n[1], n[2])


@converts("Clip", until=11)
def clip_to_attributes(n: Node) -> Value:
    return n.builder.clip(n[0], *(_bound(n, name) for name in ("min", "max")))


def _bound(n: Node, name: str) -> Value | None:
    return n.scalar(n.real(name), n[0]) if n.has(name) else None


@converts("Clip", since=11)
def clip(n: Node) -> Value:
    return n.builder.clip(n[0], n.get(1), n.get(2))
