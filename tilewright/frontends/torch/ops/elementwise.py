"""Elementwise arithmetic, comparisons and logic."""

from __future__ import annotations

import math
from typing import Any, Final

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import ATEN, TABLE, converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

# ---- one operand, in the type of the result -----------------------------------------------------

_ONE_OPERAND: Final = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log10": "log10",
    "log1p": "log1p",
    "log2": "log2",
    "neg": "neg",
    "reciprocal": "reciprocal",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}


def _declare(name: str, op: str) -> None:
    def convert(n: Node) -> Value:
        return n.builder.emit(op, n.tensor("self", n.dtype))

    TABLE.add(name, convert, domain=ATEN)


for _name, _op in _ONE_OPERAND.items():
    _declare(_name, _op)


@converts("abs", "sign", "sgn", "relu")
def of_numbers(n: Node) -> Value:
    """The sign of a truth value is itself."""
    x, name = n.tensor("self"), n.op.partition(".")[0]
    if x.dtype.is_bool:
        return n.builder.identity(x)
    return n.builder.emit("sign" if name == "sgn" else name, x)


@converts("ceil", "floor", "trunc", "round", "fix")
def rounded(n: Node) -> Value:
    x, b, name = n.tensor("self"), n.builder, n.op.partition(".")[0]
    if not x.dtype.is_float:
        return b.identity(x)
    digits = n.get("decimals", 0)
    if not digits:
        return b.emit("trunc" if name == "fix" else name, x)
    factor = n.like(10.0 ** abs(digits), x)
    if digits > 0:
        return b.div(b.round(b.mul(x, factor)), factor)
    return b.mul(b.round(b.div(x, factor)), factor)


@converts("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous", "positive")
def unchanged(n: Node) -> Value:
    return n.tensor("self")


@converts("isnan", "isinf", "isfinite")
def classified(n: Node) -> Value:
    x, name = n.tensor("self"), n.op.partition(".")[0]
    if x.dtype.is_float:
        return n.builder.emit(name, x)
    return n.full(name == "isfinite", x.shape, "bool")


@converts("isposinf", "isneginf")
def infinite(n: Node) -> Value:
    x, is_positive = n.tensor("self"), n.op.startswith("isposinf")
    if not x.dtype.is_float:
        return n.full(False, x.shape, "bool")
    return n.builder.isinf(x, positive=is_positive, negative=not is_positive)


@converts("signbit")
def signbit(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    if not x.dtype.is_float:
        return b.less(numeric(n, x), n.like(0, numeric(n, x)))
    bits = b.bitcast(x, dtype=f"int{x.dtype.bits}")
    return b.less(bits, n.like(0, bits))


@converts("logical_not")
def logical_not(n: Node) -> Value:
    return n.builder.logical_not(truth(n, n.tensor("self")))


@converts("bitwise_not")
def bitwise_not(n: Node) -> Value:
    x = n.tensor("self")
    return n.builder.emit("logical_not" if x.dtype.is_bool else "bitwise_not", x)


@converts("erfc")
def erfc(n: Node) -> Value:
    x = n.tensor("self", n.dtype)
    # 1 - erf(x) cancels where erf is nearly 1.
    wide = n.cast(x, "float64")
    return n.cast(n.builder.sub(n.like(1, wide), n.builder.erf(wide)), x.dtype)


# ---- two operands -------------------------------------------------------------------------------


def numeric(n: Node, x: Value) -> Value:
    """A tensor of numbers; truth values are 0 and 1."""
    return n.cast(x, "uint8") if x.dtype.is_bool else x


def truth(n: Node, x: Value) -> Value:
    """Whether elements are not zero."""
    return x if x.dtype.is_bool else n.builder.not_equal(x, n.like(0, x))


@converts("add", "sub", "rsub")
def added(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    name = n.op.partition(".")[0]
    alpha = n.get("alpha", 1)
    if a.dtype.is_bool:
        return n.builder.logical_or(a, b) if alpha else n.builder.identity(a)
    if name == "rsub":
        a, b = b, a
    if alpha != 1:
        b = n.builder.mul(b, n.like(alpha, b))
    return n.builder.emit("add" if name == "add" else "sub", a, b)


@converts("mul")
def mul(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    return n.builder.emit("logical_and" if a.dtype.is_bool else "mul", a, b)


@converts("div", "true_divide")
def div(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    mode = n.get("rounding_mode")
    if mode is None or (mode == "trunc" and not a.dtype.is_float):
        return n.builder.div(a, b)
    if mode == "trunc":
        return n.builder.trunc(n.builder.div(a, b))
    return floor_divided(n, a, b)


@converts("floor_divide")
def floor_divide(n: Node) -> Value:
    return floor_divided(n, *n.operands("self", "other", dtype=n.dtype))


def floor_divided(n: Node, x: Value, y: Value) -> Value:
    """Rounded down; for floats by the exact remainder, as in Python."""
    b = n.builder
    if not x.dtype.is_float:
        return b.floor_div(x, y)
    zero = n.like(0, x)
    remainder = b.mod(x, y, fmod=True)
    quotient = b.div(b.sub(x, remainder), y)
    turned = b.logical_xor(b.less(y, zero), b.less(remainder, zero))
    lower = b.logical_and(b.not_equal(remainder, zero), turned)
    quotient = b.where(lower, b.sub(quotient, n.like(1, x)), quotient)
    floor = b.floor(quotient)
    is_more = b.greater(b.sub(quotient, floor), n.like(0.5, x))
    floor = b.where(is_more, b.add(floor, n.like(1, x)), floor)
    return b.where(b.equal(y, zero), b.div(x, y), floor)


@converts("remainder", "fmod")
def remainder(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    return n.builder.mod(a, b, fmod=n.op.startswith("fmod"))


@converts("pow")
def power(n: Node) -> Value:
    a, b = n.operands("self", "exponent", dtype=n.dtype)
    if a.dtype.is_bool:
        return n.builder.logical_or(a, n.builder.logical_not(b))
    return n.builder.pow(a, b)


@converts("maximum", "minimum", "fmax", "fmin")
def extreme(n: Node) -> Value:
    b, name = n.builder, n.op.partition(".")[0]
    x, y = n.operands("self", "other", dtype=n.dtype)
    is_max = name.endswith(("max", "maximum"))
    if x.dtype.is_bool:
        return b.emit("logical_or" if is_max else "logical_and", x, y)
    result = b.emit("maximum" if is_max else "minimum", x, y)
    if name in ("maximum", "minimum") or not x.dtype.is_float:
        return result
    # Of a number and NaN, these give the number.
    return b.where(b.isnan(x), y, b.where(b.isnan(y), x, result))


@converts("atan2")
def atan2(n: Node) -> Value:
    return n.builder.atan2(*n.operands("self", "other", dtype=n.dtype))


@converts("copysign")
def copysign(n: Node) -> Value:
    x, y = n.operands("self", "other", dtype=n.dtype)
    bits = n.builder.bitcast(y, dtype=f"int{y.dtype.bits}")
    size = n.builder.abs(x)
    return n.builder.where(n.builder.less(bits, n.like(0, bits)), n.builder.neg(size), size)


@converts("hypot")
def hypot(n: Node) -> Value:
    x, y = n.operands("self", "other", dtype=n.dtype)
    wide = "float64" if x.dtype.name != "float64" else x.dtype
    p, q = n.cast(x, wide), n.cast(y, wide)
    b = n.builder
    return n.cast(b.sqrt(b.add(b.mul(p, p), b.mul(q, q))), x.dtype)


_COMPARISONS: Final = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


@converts(*_COMPARISONS)
def compared(n: Node) -> Value:
    a, b = n.operands("self", "other")
    op = _COMPARISONS[n.op.partition(".")[0]]
    if op not in ("equal", "not_equal"):
        a, b = numeric(n, a), numeric(n, b)
    return n.builder.emit(op, a, b)


@converts("logical_and", "logical_or", "logical_xor")
def logic(n: Node) -> Value:
    sides = [truth(n, n.tensor(name)) for name in ("self", "other")]
    return n.builder.emit(n.op.partition(".")[0], *sides)


@converts("bitwise_and", "bitwise_or", "bitwise_xor")
def bitwise(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    name = n.op.partition(".")[0]
    return n.builder.emit(name.replace("bitwise", "logical") if a.dtype.is_bool else name, a, b)


@converts("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
def shifted(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    is_left = "lshift" in n.op or "left" in n.op
    return n.builder.emit("left_shift" if is_left else "right_shift", a, b)


# ---- more operands ------------------------------------------------------------------------------


@converts("where")
def where(n: Node) -> Value:
    a, b = n.operands("self", "other", dtype=n.dtype)
    return n.builder.where(truth(n, n.tensor("condition")), a, b)


@converts("clamp", "clamp_min", "clamp_max", "clip")
def clamp(n: Node) -> Value:
    x, b = n.tensor("self", n.dtype), n.builder
    low, high = ("logical_or", "logical_and") if x.dtype.is_bool else ("maximum", "minimum")
    if n.get("min") is not None:
        x = b.emit(low, x, n.tensor("min", x.dtype))
    if n.get("max") is not None:
        x = b.emit(high, x, n.tensor("max", x.dtype))
    return x if x is not n["self"] else b.identity(x)


@converts("addcmul", "addcdiv")
def added_product(n: Node) -> Value:
    b = n.builder
    x, y, z = n.operands("self", "tensor1", "tensor2", dtype=n.dtype)
    part = b.emit("mul" if n.op.startswith("addcmul") else "div", y, z)
    return b.add(x, b.mul(part, n.like(n.get("value", 1), x)))


@converts("lerp")
def lerp(n: Node) -> Value:
    b = n.builder
    start, end = n.tensor("self", n.dtype), n.tensor("end", n.dtype)
    weight = n.tensor("weight", n.dtype)
    span = b.sub(end, start)
    from_start = b.add(start, b.mul(weight, span))
    from_end = b.sub(end, b.mul(span, b.sub(n.like(1, weight), weight)))
    half = n.like(0.5, weight)
    return b.where(b.less(b.abs(weight), half), from_start, from_end)


@converts("nan_to_num")
def nan_to_num(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    if not x.dtype.is_float:
        return b.identity(x)
    most = float(x.dtype.max_value)
    above, below = n.get("posinf", most), n.get("neginf", -most)
    infinity = n.like(math.inf, x)
    result = b.where(b.isnan(x), n.like(n.get("nan", 0.0), x), x)
    result = b.where(b.equal(x, infinity), n.like(above, x), result)
    return b.where(b.equal(x, b.neg(infinity)), n.like(below, x), result)


# ---- conversion ---------------------------------------------------------------------------------


@converts("_to_copy", "to", "_conj", "conj", "convert_element_type", "type_as")
def to_copy(n: Node) -> Any:
    return n.cast(n.tensor("self"), n.dtype)


@converts("view.dtype")
def seen_as(n: Node) -> Value:
    x, to = n.tensor("self"), n.dtype
    if x.dtype.bits == to.bits:
        return n.builder.bitcast(x, dtype=to)
    raise UserError(f"{x.dtype} cannot be seen as {to}", reason="the widths must be equal")
