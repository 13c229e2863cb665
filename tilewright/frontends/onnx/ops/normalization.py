"""Normalisation."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("BatchNormalization")
def batch_norm(n: Node) -> Any:
    if n.integer("spatial", 1) == 0 and n.version < 9:
        raise UserError("batch normalisation per element", reason="spatial=0 is not supported")
    x, epsilon = n[0], n.real("epsilon", 1e-5)
    parameters = [_as(n, n[k], x) for k in range(1, 5)]
    trains = n.flag("training_mode") if n.version >= 14 else not n.flag("is_test", n.version >= 7)
    if not trains:
        return n.builder.batch_norm(x, *parameters, epsilon=epsilon)
    momentum = n.real("momentum", 0.9)
    return n.builder.batch_norm_training(x, *parameters, epsilon=epsilon, momentum=momentum)


def _as(n: Node, value: Value, like: Value) -> Value:
    """A parameter in the element type of the tensor that it is applied to."""
    return value if value.dtype is like.dtype else n.builder.cast(value, dtype=like.dtype)


@converts("InstanceNormalization")
def instance_norm(n: Node) -> Value:
    return n.builder.instance_norm(n[0], n[1], n[2], epsilon=n.real("epsilon", 1e-5))


@converts("GroupNormalization")
def group_norm(n: Node) -> Value:
    x, groups = n[0], n.integer("num_groups")
    scale, bias = n[1], n[2]
    if n.version < 21:
        # One scale per group is repeated for its channels.
        scale, bias = (_per_channel(n, p, x, groups) for p in (scale, bias))
    return n.builder.group_norm(x, scale, bias, groups=groups, epsilon=n.real("epsilon", 1e-5))


def _per_channel(n: Node, value: Value, x: Value, groups: int) -> Value:
    each = x.shape[1] // groups
    wide = n.builder.expand(n.builder.unsqueeze(value, axes=[1]), shape=[groups, each])
    return n.builder.reshape(wide, shape=[x.shape[1]])


@converts("LayerNormalization")
def layer_norm(n: Node) -> Any:
    return n.builder.layer_norm(
        n[0],
        n[1],
        n.get(2),
        axis=n.integer("axis", -1),
        epsilon=n.real("epsilon", 1e-5),
        return_stats=n.wants(1) or n.wants(2),
    )


@converts("RMSNormalization")
def rms_norm(n: Node) -> Value:
    return n.builder.rms_norm(
        n[0], n[1], axis=n.integer("axis", -1), epsilon=n.real("epsilon", 1e-5)
    )


@converts("LpNormalization")
def lp_norm(n: Node) -> Value:
    return n.builder.lp_norm(n[0], axis=n.integer("axis", -1), p=n.integer("p", 2))


@converts("LRN")
def lrn(n: Node) -> Value:
    return n.builder.lrn(
        n[0],
        size=n.integer("size"),
        alpha=n.real("alpha", 1e-4),
        beta=n.real("beta", 0.75),
        bias=n.real("bias", 1.0),
    )


@converts("MeanVarianceNormalization")
def mean_variance_norm(n: Node) -> Value:
    return n.builder.mean_variance_norm(n[0], axes=n.integers("axes", [0, 2, 3]), epsilon=1e-9)
