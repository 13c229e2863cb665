"""Elementwise operators with one or two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.frontends.tflite.fixed_point import (
    INT32,
    away_from_zero,
    by_table,
    is_bytes,
    quantized,
    real,
    real_bytes,
    result_range,
    same_scale,
    scaled,
)
from tilewright.frontends.tflite.images import activated
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Array, Value, find_op
from tilewright.support.errors import UserError

# ---- one operand --------------------------------------------------------------------------------

_UNARY: Final = {
    "ABS": "abs",
    "CEIL": "ceil",
    "COS": "cos",
    "EXP": "exp",
    "FLOOR": "floor",
    "LOG": "log",
    "NEG": "neg",
    "ROUND": "round",
    "RSQRT": "rsqrt",
    "SIGN": "sign",
    "SIN": "sin",
    "SQRT": "sqrt",
    "LOGISTIC": "sigmoid",
    "TANH": "tanh",
    "ELU": "elu",
    "HARD_SWISH": "hard_swish",
}


@converts(*_UNARY)
def unary(n: Node) -> Value:
    return applied(n, _UNARY[n.op])


@converts("GELU")
def gelu(n: Node) -> Value:
    return applied(n, "gelu", approximate="tanh" if n.option("approximate") else "none")


def applied(n: Node, name: str, **attrs: Any) -> Value:
    """An operator on real numbers; for bytes, a table of its results."""
    if not n.is_quantized:
        return n.builder.emit(name, n[0], **attrs)
    if is_bytes(n[0]):
        op = find_op(name)
        _, known = op.bind([n[0]], attrs)
        return through_table(n, lambda x: op.evaluate([x], known)[0])
    return quantized(n, n.builder.emit(name, real(n, 0), **attrs))


def through_table(n: Node, function: Callable[[Array], Array]) -> Value:
    """A function of real numbers, on bytes that represent them."""
    dtype, how = n.out_dtype(), n.out_quantization()
    with np.errstate(all="ignore"):
        made = np.asarray(function(real_bytes(n[0], n.quantization(0))), np.float32)
        steps = np.nan_to_num(away_from_zero(made * np.float32(1 / how.scale)))
    stored = np.clip(steps + how.zero, dtype.min_value, dtype.max_value)
    return by_table(n, n[0], stored.astype(dtype.numpy))


@converts("SQUARE")
def square(n: Node) -> Value:
    x = real(n, 0)
    return quantized(n, n.builder.mul(x, x))


@converts("ZEROS_LIKE")
def zeros_like(n: Node) -> Value:
    return n.builder.full(n.scalar(0, n[0]), shape=n[0].shape)


@converts("LOGICAL_NOT")
def logical_not(n: Node) -> Value:
    return n.builder.logical_not(n[0])


# ---- sums and products --------------------------------------------------------------------------

#: By how many bits operands of a quantized sum are shifted up before they are rounded.
_FINER: Final = {8: 20, 16: 15}
_HALF: Final = 0.5


@converts("ADD", "SUB")
def add(n: Node) -> Value:
    name = n.op.lower()
    if not n.is_quantized or n[0].dtype.bits > 16:
        return activated(n, n.builder.emit(name, n[0], n[1]))
    finer = _FINER[n[0].dtype.bits]
    scales = [float(n.quantization(k).scale) for k in (0, 1)]
    most = 2 * max(scales)
    parts = [_finer(n, k, finer, scales[k] / most) for k in (0, 1)]
    total = n.builder.emit(name, *parts)
    limits = result_range(n, n.activation)
    factor = most / ((1 << finer) * float(n.out_quantization().scale))
    return scaled(n, total, factor, **limits._asdict())


def centred(n: Node, index: int) -> Value:
    """An operand in int32, without its zero point."""
    b = n.builder
    return b.sub(b.cast(n[index], dtype=INT32), n.constant(n.quantization(index).zero, INT32))


def _finer(n: Node, index: int, bits: int, factor: float) -> Value:
    """An operand times a factor, shifted up by `bits`."""
    if factor == _HALF:
        # Nothing is rounded: the other operand's steps are no larger.
        return n.builder.mul(centred(n, index), n.constant(1 << (bits - 1), INT32))
    return scaled(n, n.builder.mul(centred(n, index), n.constant(1 << bits, INT32)), factor)


@converts("MUL")
def mul(n: Node) -> Value:
    if not n.is_quantized or n[0].dtype.bits > 16:
        return activated(n, n.builder.mul(n[0], n[1]))
    limits = result_range(n, n.activation)
    scales = [n.quantization(k).scale for k in (0, 1)]
    factor = float(np.float32(np.float32(scales[0] * scales[1]) / n.out_quantization().scale))
    total = n.builder.mul(centred(n, 0), centred(n, 1))
    return scaled(n, total, factor, **limits._asdict())


@converts("DIV")
def div(n: Node) -> Value:
    return quantized(n, activated(n, n.builder.div(real(n, 0), real(n, 1))))


@converts("SQUARED_DIFFERENCE")
def squared_difference(n: Node) -> Value:
    apart = n.builder.sub(real(n, 0), real(n, 1))
    return quantized(n, n.builder.mul(apart, apart))


@converts("ADD_N")
def add_n(n: Node) -> Value:
    total, *others = n.all
    for other in others:
        total = n.builder.add(total, other)
    return total


_BINARY: Final = {
    "ATAN2": "atan2",
    "BITWISE_XOR": "bitwise_xor",
    "FLOOR_DIV": "floor_div",
    "LOGICAL_AND": "logical_and",
    "LOGICAL_OR": "logical_or",
    "POW": "pow",
    "RIGHT_SHIFT": "right_shift",
    "FLOOR_MOD": "mod",
}


@converts(*_BINARY)
def binary(n: Node) -> Value:
    return n.builder.emit(_BINARY[n.op], n[0], n[1])


@converts("MAXIMUM", "MINIMUM")
def maximum(n: Node) -> Value:
    name = n.op.lower()
    hows = [n.tensor(k).quantization for k in (0, 1)]
    if not n.is_quantized or all(same_scale(h, n.out().quantization) for h in hows):
        return n.builder.emit(name, n[0], n[1])
    return quantized(n, n.builder.emit(name, real(n, 0), real(n, 1)))


# ---- comparing and choosing ---------------------------------------------------------------------


@converts("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def compare(n: Node) -> Value:
    name = n.op.lower()
    if not n.is_quantized or same_scale(n.tensor(0).quantization, n.tensor(1).quantization):
        return n.builder.emit(name, n[0], n[1])
    return n.builder.emit(name, real(n, 0), real(n, 1))


@converts("SELECT", "SELECT_V2")
def select(n: Node) -> Value:
    condition, a = n[0], n[1]
    if n.op == "SELECT" and condition.ndim == 1 and a.ndim > 1:
        # One condition for each of the first dimension.
        shape = [condition.shape[0], *[1] * (a.ndim - 1)]
        condition = n.builder.reshape(condition, shape=shape)
    return n.builder.where(condition, a, n[2])


# ---- activations --------------------------------------------------------------------------------


@converts("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def relu(n: Node) -> Value:
    if not n.is_quantized:
        if n.op == "RELU_0_TO_1":
            return n.builder.clip(n[0], n.scalar(0, n[0]), n.scalar(1, n[0]))
        return activated(n, n[0], n.op)
    if n.op == "RELU_0_TO_1" or not is_bytes(n[0]):
        return quantized(n, n.builder.clip(real(n, 0), 0.0, 1.0 if n.op.endswith("1") else None))
    limits, how = result_range(n, n.op), n.quantization(0)
    factor = float(how.scale) / float(n.out_quantization().scale)
    return scaled(n, centred(n, 0), factor, **limits._asdict())


@converts("LEAKY_RELU")
def leaky_relu(n: Node) -> Value:
    alpha = n.option("alpha")
    if not n.is_quantized:
        return n.builder.leaky_relu(n[0], alpha=alpha)
    how, out = n.quantization(0), n.out_quantization()
    limits = result_range(n)
    ratio = float(how.scale) / float(out.scale)
    x = centred(n, 0)
    above = scaled(n, x, ratio, **limits._asdict())
    # A negative slope, which is rare, negates its operand.
    turned = x if alpha >= 0 else n.builder.neg(x)
    below = scaled(n, turned, float(how.scale) * abs(alpha) / float(out.scale), **limits._asdict())
    return n.builder.where(n.builder.greater_equal(x, n.scalar(0, x)), above, below)


@converts("PRELU")
def prelu(n: Node) -> Value:
    if not n.is_quantized:
        return n.builder.prelu(n[0], n[1])
    how, slope, out = n.quantization(0), n.quantization(1), n.out_quantization()
    limits = result_range(n)
    x = centred(n, 0)
    above = scaled(n, x, float(how.scale) / float(out.scale), **limits._asdict())
    product = n.builder.mul(x, centred(n, 1))
    factor = float(how.scale) * float(slope.scale) / float(out.scale)
    below = scaled(n, product, factor, **limits._asdict())
    return n.builder.where(n.builder.greater_equal(x, n.scalar(0, x)), above, below)


@converts("FAKE_QUANT")
def fake_quant(n: Node) -> Value:
    """Real numbers rounded to steps, as if they were quantized."""
    b, x = n.builder, n[0]
    low, high = float(n.option("min")), float(n.option("max"))
    bits: int = n.option("bits")
    if not 2 <= bits <= 16 or not low < high:
        raise UserError(f"{bits} bits are asked for numbers from {low} to {high}")
    least, most = float(n.option("narrow")), float((1 << bits) - 1)
    scale = np.float32((high - low) / (most - least))
    zero = np.float32(min(max(round(least - low / float(scale)), least), most))
    bounds = [(np.float32(v) - zero) * scale for v in (least, most)]
    held = b.clip(x, n.scalar(bounds[0], x), n.scalar(bounds[1], x))
    steps = b.mul(b.sub(held, n.scalar(bounds[0], x)), n.scalar(1 / scale, x))
    whole = b.floor(b.add(steps, n.scalar(0.5, x)))
    return b.add(b.mul(whole, n.scalar(scale, x)), n.scalar(bounds[0], x))
