"""Elementwise layers."""

from __future__ import annotations

import math

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("ReLU")
def relu(n: Layer) -> Value:
    slope = n.param("relu_param").real("negative_slope", 0.0)
    return n.builder.relu(n[0]) if slope == 0.0 else n.builder.leaky_relu(n[0], alpha=slope)


@converts("ReLU6")
def relu6(n: Layer) -> Value:
    return n.builder.clip(n[0], 0.0, 6.0)


@converts("Clip")
def clip(n: Layer) -> Value:
    param = n.param("clip_param")
    return n.builder.clip(n[0], param.real("min", -math.inf), param.real("max", math.inf))


@converts("PReLU")
def prelu(n: Layer) -> Value:
    """A slope for all channels, or one for each."""
    x = n[0]
    shared = n.param("prelu_param").flag("channel_shared")
    slope = n.blob(0, 1 if shared else n.extent(x, 1))
    return n.builder.prelu(x, slope.reshape(slope.size, *[1] * (x.ndim - 2)))


@converts("ELU")
def elu(n: Layer) -> Value:
    return n.builder.elu(n[0], alpha=n.param("elu_param").real("alpha", 1.0))


@converts("Sigmoid")
def sigmoid(n: Layer) -> Value:
    return n.builder.sigmoid(n[0])


@converts("TanH")
def tanh(n: Layer) -> Value:
    return n.builder.tanh(n[0])


@converts("AbsVal")
def absolute(n: Layer) -> Value:
    return n.builder.abs(n[0])


@converts("BNLL")
def softplus(n: Layer) -> Value:
    return n.builder.softplus(n[0])


@converts("Swish")
def swish(n: Layer) -> Value:
    return n.builder.swish(n[0], alpha=n.param("swish_param").real("beta", 1.0))


@converts("Power")
def power(n: Layer) -> Value:
    """(shift + scale·x) to a power."""
    param, b = n.param("power_param"), n.builder
    x = _affine(n, param.real("scale", 1.0), param.real("shift", 0.0))
    exponent = param.real("power", 1.0)
    if exponent == 1.0:
        return x
    return b.mul(x, x) if exponent == 2.0 else b.pow(x, exponent)


@converts("Exp")
def exponential(n: Layer) -> Value:
    """A base, e unless told otherwise, to shift + scale·x."""
    param = n.param("exp_param")
    factor = _log_of_base(param.real("base", -1.0))
    scale, shift = param.real("scale", 1.0), param.real("shift", 0.0)
    return n.builder.exp(_affine(n, scale * factor, shift * factor))


@converts("Log")
def logarithm(n: Layer) -> Value:
    param, b = n.param("log_param"), n.builder
    factor = _log_of_base(param.real("base", -1.0))
    made = b.log(_affine(n, param.real("scale", 1.0), param.real("shift", 0.0)))
    if factor == 0.0:
        raise UserError("a logarithm to the base 1")
    return made if factor == 1.0 else b.mul(made, 1.0 / factor)


def _log_of_base(base: float) -> float:
    if base == -1.0:
        return 1.0
    if not base > 0:
        raise UserError(f"the base is {base}", remedy="use a positive one")
    return math.log(base)


def _affine(n: Layer, scale: float, shift: float) -> Value:
    b, x = n.builder, n[0]
    x = x if scale == 1.0 else b.mul(x, scale)
    return x if shift == 0.0 else b.add(x, shift)


@converts("Threshold")
def threshold(n: Layer) -> Value:
    b, least = n.builder, n.param("threshold_param").real("threshold", 0.0)
    return b.cast(b.greater(n[0], least), dtype="float32")


@converts("Dropout", "Split")
def passed(n: Layer) -> list[Value]:
    return [n[0]] * n.outputs


@converts("Silence")
def silence(n: Layer) -> list[Value]:
    """Consumes a value, so that it is not an output."""
    del n
    return []
