"""Activations."""

from __future__ import annotations

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


@converts("gelu")
def gelu(n: Node) -> Value:
    return n.builder.gelu(n.tensor("self"), approximate=n.get("approximate", "none"))


@converts("silu")
def silu(n: Node) -> Value:
    return n.builder.swish(n.tensor("self"))


@converts("mish", "softsign", "selu", "log_sigmoid")
def by_name(n: Node) -> Value:
    return n.builder.emit(n.op.partition(".")[0], n.tensor("self"))


@converts("hardswish")
def hardswish(n: Node) -> Value:
    return n.builder.hard_swish(n.tensor("self"))


@converts("hardsigmoid")
def hardsigmoid(n: Node) -> Value:
    return n.builder.hard_sigmoid(n.tensor("self"))


@converts("relu6")
def relu6(n: Node) -> Value:
    x = n.tensor("self")
    return n.builder.minimum(n.builder.relu(x), n.like(6, x))


@converts("hardtanh")
def hardtanh(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    low, high = n.like(n.get("min_val", -1), x), n.like(n.get("max_val", 1), x)
    return b.minimum(b.maximum(x, low), high)


@converts("leaky_relu")
def leaky_relu(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    slope = n.get("negative_slope", 0.01)
    if isinstance(slope, float | int):
        return b.leaky_relu(x, alpha=float(slope))
    return b.where(b.greater(x, n.like(0, x)), x, b.mul(x, n.like(slope, x)))


@converts("elu")
def elu(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    alpha, scale, inner = (float(n.get(k, 1)) for k in ("alpha", "scale", "input_scale"))
    below = b.mul(b.expm1(b.mul(x, n.like(inner, x))), n.like(alpha * scale, x))
    return b.where(b.greater(x, n.like(0, x)), b.mul(x, n.like(scale, x)), below)


@converts("celu")
def celu(n: Node) -> Value:
    return n.builder.celu(n.tensor("self"), alpha=float(n.get("alpha", 1)))


@converts("softplus")
def softplus(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    beta, threshold = float(n.get("beta", 1)), float(n.get("threshold", 20))
    if beta == 1 and threshold == 20:
        return b.softplus(x)
    scaled = b.mul(x, n.like(beta, x))
    soft = b.div(b.softplus(scaled), n.like(beta, x))
    return b.where(b.greater(scaled, n.like(threshold, x)), x, soft)


@converts("threshold")
def threshold(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    return b.where(b.greater(x, n.like(n["threshold"], x)), x, n.like(n["value"], x))


@converts("_prelu_kernel", "prelu")
def prelu(n: Node) -> Value:
    x, weight = n.tensor("self"), n.tensor("weight")
    if n.op.startswith("prelu") and weight.tensor.size != 1 and x.ndim > 1:
        weight = n.builder.reshape(weight, shape=[-1, *[1] * (x.ndim - 2)])
    zero = n.like(0, x)
    return n.builder.where(n.builder.greater(x, zero), x, n.builder.mul(x, weight))


@converts("glu")
def glu(n: Node) -> Value:
    x, axis = n.tensor("self"), n.axis("dim", default=-1)
    half = x.shape[axis] // 2
    a, gate = n.builder.emit_all("split", [x], {"sizes": [half, half], "axis": axis})
    return n.builder.mul(a, n.builder.sigmoid(gate))


@converts("native_dropout", "dropout")
def dropout(n: Node) -> object:
    from tilewright.support.errors import UserError

    x = n.tensor("input")
    if n.get("train", False) and float(n["p"]) > 0:
        raise UserError("dropout while training", reason="it is random", remedy="call .eval()")
    kept = n.full(True, x.shape, "bool")
    return x if n.op.startswith("dropout") else [x, kept]
