"""Normalisation by batches, layers and groups."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.reduction import variance_of
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


@converts("_native_batch_norm_legit_no_training", "native_batch_norm", "cudnn_batch_norm")
@converts("_batch_norm_no_update", "_native_batch_norm_legit", "_batch_norm_with_update")
@converts("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional")
def batch_norm(n: Node) -> Any:
    b, x = n.builder, n.tensor("input")
    trains = bool(n.get("training", "with_update" in n.op)) and "no_training" not in n.op
    trains = trains and "no_update" not in n.op
    epsilon = float(n["eps"])
    channels = x.shape[1]
    work = "float64" if x.dtype.name == "float64" else "float32"
    scale, bias = (n.maybe(k, work) for k in ("weight", "bias"))
    scale = n.full(1, [channels], work) if scale is None else scale
    bias = n.full(0, [channels], work) if bias is None else bias
    wide = n.cast(x, work)
    if trains:
        return _training(n, wide, scale, bias, epsilon)
    mean, var = n.tensor("running_mean", work), n.tensor("running_var", work)
    made = n.cast(b.batch_norm(wide, scale, bias, mean, var, epsilon=epsilon), n.dtype)
    rest = [n.full(0, n.shape_of(m), _type(m)) for m in n.results[1:]]
    return [made, *rest]


def _type(meta: Any) -> Any:
    from tilewright.frontends.torch.tensors import element_type

    return element_type(meta.dtype)


def _training(n: Node, x: Value, scale: Value, bias: Value, epsilon: float) -> list[Value]:
    """By the moments of the batch itself, which are also results, and the new running ones."""
    b = n.builder
    axes = [k for k in range(x.ndim) if k != 1]
    var, mean = variance_of(n, x, axes, 0.0, False)
    made = n.cast(b.batch_norm(x, scale, bias, mean, var, epsilon=epsilon), n.dtype)
    inverse = b.rsqrt(b.add(var, n.like(epsilon, var)))
    results = [made, mean, inverse]
    if "functional" in n.op:
        unbiased, _ = variance_of(n, x, axes, 1.0, False)
        momentum = float(n["momentum"])
        for name, new in (("running_mean", mean), ("running_var", unbiased)):
            old = n.tensor(name, new.dtype)
            kept = b.mul(old, n.like(1 - momentum, old))
            results.append(b.add(kept, b.mul(new, n.like(momentum, new))))
    if "batch_norm_with_update" in n.op:
        results.insert(3, n.full(0, [0], "uint8"))
    return [n.cast(v, _type(m)) for v, m in zip(results, n.results, strict=False)]


@converts("native_layer_norm", "layer_norm")
def layer_norm(n: Node) -> Any:
    b, x = n.builder, n.tensor("input")
    axis = x.ndim - len(n["normalized_shape"])
    scale, bias, epsilon = n.maybe("weight"), n.maybe("bias"), float(n["eps"])
    wants = len(n.results) > 1
    made = b.layer_norm(x, scale, bias, axis=axis, epsilon=epsilon, return_stats=wants)
    if not wants:
        return made
    return [n.cast(v, _type(m)) for v, m in zip(made, n.results, strict=True)]


@converts("_fused_rms_norm", "rms_norm")
def rms_norm(n: Node) -> Any:
    b, x = n.builder, n.tensor("input")
    axis = x.ndim - len(n["normalized_shape"])
    epsilon = n.get("eps")
    if epsilon is None:
        import numpy as np

        epsilon = float(np.finfo(x.dtype.numpy).eps) if x.dtype.name != "bfloat16" else 2.0**-7
    made = b.rms_norm(x, n.maybe("weight"), axis=axis, epsilon=float(epsilon))
    if len(n.results) == 1:
        return made
    squares = b.mean(b.mul(x, x), axes=list(range(axis, x.ndim)), keepdims=True)
    inverse = b.rsqrt(b.add(squares, n.like(float(epsilon), squares)))
    return [made, n.cast(inverse, _type(n.results[1]))]


@converts("native_group_norm", "group_norm")
def group_norm(n: Node) -> Any:
    b, x = n.builder, n.tensor("input")
    groups = int(n["group"] if "group" in n else n["num_groups"])
    channels, epsilon = x.shape[1], float(n["eps"])
    scale = n.maybe("weight") or n.full(1, [channels], x.dtype)
    bias = n.maybe("bias") or n.full(0, [channels], x.dtype)
    image = x if x.ndim > 2 else b.unsqueeze(x, axes=[2])
    made = b.group_norm(image, scale, bias, groups=groups, epsilon=epsilon)
    made = made if x.ndim > 2 else b.squeeze(made, axes=[2])
    if len(n.results) == 1:
        return made
    parts = b.reshape(x, shape=[x.shape[0], groups, -1])
    var, mean = variance_of(n, parts, [2], 0.0, False)
    inverse = b.rsqrt(b.add(var, n.like(epsilon, var)))
    return [
        made,
        *(n.cast(v, _type(m)) for v, m in zip((mean, inverse), n.results[1:], strict=True)),
    ]
