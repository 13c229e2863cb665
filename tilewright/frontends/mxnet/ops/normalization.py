"""Normalisation, softmax and output layers of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.mxnet.node import Node
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value, product
from tilewright.support.errors import UserError


@converts("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "CuDNNBatchNorm")
def batch_norm(n: Node) -> list[Any]:
    """By the learned means and variances; `fix_gamma` makes all scales 1."""
    b, x = n.builder, n[0]
    gamma, beta = n[1], n[2]
    # Old symbols do not list parameters that training changes.
    mean, variance = (n[3], n[4]) if len(n) > 4 else (n.state("moving_mean"), n.state("moving_var"))
    if n.flag("fix_gamma", True):
        gamma = b.constant(np.ones([n.extent(gamma, 0)]), x.dtype)
    gamma, beta, mean, variance = (_as(n, v, x) for v in (gamma, beta, mean, variance))
    axis = n.axis("axis", 1, x.ndim)
    order = [0, axis, *(k for k in range(1, x.ndim) if k != axis)] if axis else None
    if order is None:
        raise UserError("batch normalisation along the first axis is not supported")
    image = x if axis == 1 else b.transpose(x, axes=order)
    made = b.batch_norm(image, gamma, beta, mean, variance, epsilon=n.real("eps", 1e-3))
    if axis != 1:
        made = b.transpose(made, axes=[order.index(k) for k in range(x.ndim)])
    return [made, mean, variance]


def _as(n: Node, value: Value, like: Value) -> Value:
    return value if value.dtype is like.dtype else n.builder.cast(value, dtype=like.dtype)


@converts("InstanceNorm")
def instance_norm(n: Node) -> Value:
    return n.builder.instance_norm(n[0], n[1], n[2], epsilon=n.real("eps", 1e-3))


@converts("LayerNorm")
def layer_norm(n: Node) -> Value:
    b, x = n.builder, n[0]
    axis, epsilon = n.axis("axis", -1, x.ndim), n.real("eps", 1e-5)
    if axis == x.ndim - 1:
        return b.layer_norm(x, n[1], n[2], axis=-1, epsilon=epsilon)
    order = [*(k for k in range(x.ndim) if k != axis), axis]
    made = b.layer_norm(b.transpose(x, axes=order), n[1], n[2], axis=-1, epsilon=epsilon)
    return b.transpose(made, axes=[order.index(k) for k in range(x.ndim)])


@converts("GroupNorm")
def group_norm(n: Node) -> Value:
    """Older versions have a scale for each group, newer ones for each channel."""
    b, x, groups = n.builder, n[0], n.integer("num_groups", 1)
    channels = n.extent(x, 1)
    if groups < 1 or channels % groups:
        raise UserError(f"{groups} groups of {channels} channels")
    gamma, beta = n[1], n[2]
    if n.extent(gamma, 0) == groups != channels:
        each = channels // groups
        gamma, beta = (b.repeat_elements(v, repeats=each, axis=0) for v in (gamma, beta))
    return b.group_norm(x, gamma, beta, groups=groups, epsilon=n.real("eps", 1e-5))


@converts("LRN")
def lrn(n: Node) -> list[Any]:
    made = n.builder.lrn(
        n[0],
        size=n.integer("nsize"),
        alpha=n.real("alpha", 1e-4),
        beta=n.real("beta", 0.75),
        bias=n.real("knorm", 2.0),
    )
    return [made]


@converts("L2Normalization")
def l2_normalization(n: Node) -> Value:
    b, x, mode = n.builder, n[0], n.text("mode", "instance")
    axes = {"instance": list(range(1, x.ndim)), "channel": [1], "spatial": list(range(2, x.ndim))}
    if mode not in axes:
        raise UserError(f"the mode {mode[:40]} is not known")
    squares = b.sum(b.mul(x, x), axes=axes[mode], keepdims=True)
    return b.div(x, b.sqrt(b.add(squares, n.scalar(n.real("eps", 1e-10), x))))


# ---- softmax ------------------------------------------------------------------------------------


@converts("softmax", "log_softmax", "softmin")
def softmax(n: Node) -> Value:
    b, x = n.builder, n[0]
    axis = n.axis("axis", -1, x.ndim)
    temperature = n.real("temperature", 1.0)
    if n.op == "softmin":
        x = b.neg(x)
    if temperature != 1.0:
        x = b.div(x, n.scalar(temperature, x))
    if n.flag("use_length"):
        return _masked(n, x, axis)
    return b.emit("log_softmax" if n.op == "log_softmax" else "softmax", x, axis=axis)


def _masked(n: Node, x: Value, axis: int) -> Value:
    """Elements from a length on are ignored, and zero."""
    b = n.builder
    places = b.constant(np.arange(n.extent(x, axis)), "int64")
    places = b.reshape(places, shape=[-1, *[1] * (x.ndim - 1 - axis)])
    lengths = b.unsqueeze(n.index(n[1]), axes=[axis])
    inside = b.less(places, b.cast(lengths, dtype="int64"))
    made = b.softmax(b.where(inside, x, n.scalar(-np.inf, x)), axis=axis)
    return b.where(inside, made, n.scalar(0, x))


@converts("SoftmaxOutput", "Softmax")
def softmax_output(n: Node) -> Value:
    """Over channels, over the last axis, or over a whole image."""
    b, x = n.builder, n[0]
    if n.flag("multi_output"):
        return b.softmax(x, axis=1)
    if n.flag("preserve_shape") or x.ndim == 2:
        return b.softmax(x, axis=-1)
    rows = b.reshape(x, shape=[x.shape[0], product(x.shape[1:])])
    return b.reshape(b.softmax(rows, axis=-1), shape=x.shape)


@converts("SoftmaxActivation")
def softmax_activation(n: Node) -> Value:
    """Over channels or, by MXNet's kernels, over the last axis."""
    is_channel = n.text("mode", "instance") == "channel"
    return n.builder.softmax(n[0], axis=1 if is_channel else -1)


@converts("LogisticRegressionOutput")
def logistic_output(n: Node) -> Value:
    return n.builder.sigmoid(n[0])
