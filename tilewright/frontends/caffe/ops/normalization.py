"""Normalisation, scales and biases, softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.prototxt import Message
from tilewright.frontends.caffe.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError


@converts("BatchNorm")
def batch_norm(n: Layer) -> Value:
    """By the learned means and variances, which are stored as sums."""
    param, b, x = n.param("batch_norm_param"), n.builder, n[0]
    epsilon = param.real("eps", 1e-5)
    if not param.flag("use_global_stats", True):
        axes = [k for k in range(x.ndim) if k != 1]
        centred = b.sub(x, b.mean(x, axes=axes, keepdims=True))
        variance = b.mean(b.mul(centred, centred), axes=axes, keepdims=True)
        return b.div(centred, b.sqrt(b.add(variance, epsilon)))
    channels = n.extent(x, 1)
    total = float(n.blob(2, 1)[0])
    factor = np.float32(0 if total == 0 else 1 / total)
    mean, variance = (n.blob(k, channels) * factor for k in (0, 1))
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    return b.batch_norm(x, ones, zeros, mean, variance, epsilon=epsilon)


@converts("Scale")
def scale(n: Layer) -> Value:
    """Multiplied by weights, or by another blob, from an axis on; perhaps with a bias."""
    param, b, x = n.param("scale_param"), n.builder, n[0]
    axis = n.axis(param.integer("axis", 1), x.ndim)
    if len(n.inputs) > 1:
        shape, factor, biases = list(n[1].shape), _placed(n, n[1], axis, x), 0
    else:
        shape, factor, biases = _shape(n, param, axis, x), None, 1
        factor = _weights(n, 0, shape, axis, x)
    made = b.mul(x, factor)
    if not param.flag("bias_term"):
        return made
    return b.add(made, _weights(n, biases, shape, axis, x))


@converts("Bias")
def bias(n: Layer) -> Value:
    param, x = n.param("bias_param"), n[0]
    axis = n.axis(param.integer("axis", 1), x.ndim)
    if len(n.inputs) > 1:
        return n.builder.add(x, _placed(n, n[1], axis, x))
    return n.builder.add(x, _weights(n, 0, _shape(n, param, axis, x), axis, x))


def _shape(n: Layer, param: Message, axis: int, x: Value) -> list[int]:
    """The extents of the operand that the weights have."""
    count = param.integer("num_axes", 1)
    end = x.ndim if count == -1 else axis + count
    if not axis <= end <= x.ndim:
        raise UserError(f"{count} axes of {x} from {axis} on")
    return [n.extent(x, k) for k in range(axis, end)]


def _weights(n: Layer, index: int, shape: list[Any], axis: int, x: Value) -> Array:
    found = n.blob(index, *(int(getattr(s, "value", s)) for s in shape))
    return found.reshape([*found.shape, *[1] * (x.ndim - axis - found.ndim)])


def _placed(n: Layer, value: Value, axis: int, x: Value) -> Value:
    """A blob whose first axis is aligned with `axis` of another."""
    behind = x.ndim - axis - value.ndim
    if behind < 0:
        raise UserError(f"{value} does not fit {x} from axis {axis} on")
    return n.builder.reshape(value, shape=[*value.shape, *[1] * behind])


@converts("LRN")
def lrn(n: Layer) -> Value:
    param, b, x = n.param("lrn_param"), n.builder, n[0]
    size, alpha = param.integer("local_size", 5), param.real("alpha", 1.0)
    beta = param.real("beta", 0.75)
    if size < 1 or size % 2 == 0:
        raise UserError(f"local_size is {size}", remedy="use an odd number")
    if param.text("norm_region", "ACROSS_CHANNELS") in ("ACROSS_CHANNELS", "0"):
        return b.lrn(x, size=size, alpha=alpha, beta=beta, bias=param.real("k", 1.0))
    around = [size // 2] * 4
    means = b.avg_pool(b.mul(x, x), kernel=[size] * 2, pads=around, count_include_pad=True)
    return b.mul(x, b.pow(b.add(b.mul(means, alpha), 1.0), -beta))


@converts("MVN")
def mean_variance(n: Layer) -> Value:
    param, b, x = n.param("mvn_param"), n.builder, n[0]
    axes = list(range(1 if param.flag("across_channels") else 2, x.ndim))
    centred = b.sub(x, b.mean(x, axes=axes, keepdims=True))
    if not param.flag("normalize_variance", True):
        return centred
    deviation = b.sqrt(b.mean(b.mul(centred, centred), axes=axes, keepdims=True))
    return b.div(centred, b.add(deviation, param.real("eps", 1e-9)))


@converts("Normalize")
def normalize(n: Layer) -> Value:
    """SSD's: each pixel's channels, or the whole image, as a vector of length 1, then scaled."""
    param, b, x = n.param("norm_param"), n.builder, n[0]
    axes = [1, 2, 3] if param.flag("across_spatial", True) else [1]
    squares = b.sum(b.mul(x, x), axes=axes, keepdims=True)
    made = b.div(x, b.sqrt(b.add(squares, param.real("eps", 1e-10))))
    shared = param.flag("channel_shared", True)
    factor = n.blob(0, 1 if shared else n.extent(x, 1))
    return b.mul(made, factor.reshape(factor.size, 1, 1))


@converts("Softmax")
def softmax(n: Layer) -> Value:
    return n.builder.softmax(n[0], axis=n.param("softmax_param").integer("axis", 1))


@converts("Axpy")
def axpy(n: Layer) -> Value:
    """Channels times one number each, plus another blob: a·x + y."""
    b, a, x = n.builder, n[0], n[1]
    factor = b.reshape(a, shape=[*a.shape[:2], *[1] * (x.ndim - 2)])
    return b.add(b.mul(factor, x), n[2])


@converts("Eltwise")
def eltwise(n: Layer) -> Value:
    param, b = n.param("eltwise_param"), n.builder
    kind = param.text("operation", "SUM")
    values = [n[k] for k in range(max(2, len(n.inputs)))]
    factors = param.reals("coeff")
    if factors and (len(factors) != len(values) or kind not in ("SUM", "1")):
        raise UserError(f"{len(factors)} coefficients for {len(values)} blobs by {kind[:40]}")
    if any(not math.isfinite(f) for f in factors):
        raise UserError(f"the coefficients are {factors}")
    values = [
        v if f == 1.0 else b.mul(v, f)
        for v, f in zip(values, factors or [1.0] * len(values), strict=True)
    ]
    ops = {"PROD": b.mul, "0": b.mul, "SUM": b.add, "1": b.add, "MAX": b.maximum, "2": b.maximum}
    if kind not in ops:
        raise UserError(f"the operation {kind[:40]} is not known", remedy="use PROD, SUM or MAX")
    made = values[0]
    for value in values[1:]:
        made = ops[kind](made, value)
    return made
