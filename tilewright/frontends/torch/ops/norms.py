"""Norms, distances, and losses that torch does not decompose correctly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.reduction import keeps
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


@converts("linalg_vector_norm")
def vector_norm(n: Node) -> Value:
    x = n.tensor("self", n.dtype)
    return norm_of(n, x, float(n.get("ord", 2)), n.axes("dim"), keeps(n))


def norm_of(n: Node, x: Value, order: float, axes: list[int], keepdims: bool) -> Value:
    """A norm over axes; of order 0, how many elements are not zero."""
    b, size = n.builder, n.builder.abs(x)
    attrs: dict[str, Any] = {"axes": axes, "keepdims": keepdims}
    if not x.ndim:
        return n.cast(b.not_equal(size, n.like(0, x)), x.dtype) if order == 0 else size
    if order == 0:
        return b.sum(n.cast(b.not_equal(x, n.like(0, x)), x.dtype), **attrs)
    if math.isinf(order):
        return b.emit("max" if order > 0 else "min", size, **attrs)
    if order == 1:
        return b.sum(size, **attrs)
    if order == 2:
        return b.sqrt(b.sum(b.mul(x, x), **attrs))
    return b.pow(b.sum(b.pow(size, n.like(order, x)), **attrs), n.like(1 / order, x))


@converts("dist")
def dist(n: Node) -> Value:
    """The norm of a difference."""
    x, y = n.operands("self", "other", dtype=n.dtype)
    apart = n.builder.sub(x, y)
    return norm_of(n, apart, float(n.get("p", 2)), list(range(apart.ndim)), False)


@converts("_cdist_forward", "cdist")
def cdist(n: Node) -> Value:
    """Distances between all rows of two matrices."""
    b, p = n.builder, float(n.get("p", 2.0))
    x, y = (b.unsqueeze(n.tensor(k), axes=[-2 if k == "x1" else -3]) for k in ("x1", "x2"))
    apart = b.abs(b.sub(x, y))
    axes = [apart.ndim - 1]
    if p == 0:
        return b.sum(n.cast(b.not_equal(apart, n.like(0, apart)), apart.dtype), axes=axes)
    if math.isinf(p):
        return b.max(apart, axes=axes)
    if p == 1:
        return b.sum(apart, axes=axes)
    total = b.sum(b.pow(apart, n.like(p, apart)), axes=axes)
    return b.sqrt(total) if p == 2 else b.pow(total, n.like(1 / p, total))


@converts("_pdist_forward")
def pdist(n: Node) -> Value:
    """Distances between all pairs of rows."""
    b, x, p = n.builder, n.tensor("self"), float(n.get("p", 2.0))
    rows = int(x.tensor.static_shape[0])
    first, second = (b.constant(k.astype(np.int64)) for k in np.triu_indices(rows, 1))
    apart = b.abs(b.sub(b.gather(x, first, axis=0), b.gather(x, second, axis=0)))
    if p == 0:
        return b.sum(n.cast(b.not_equal(apart, n.like(0, apart)), apart.dtype), axes=[1])
    if math.isinf(p):
        return b.max(apart, axes=[1])
    total = b.sum(b.pow(apart, n.like(p, apart)), axes=[1])
    return b.pow(total, n.like(1 / p, total))


@converts("multilabel_margin_loss_forward")
def multilabel_margin_loss(n: Node) -> list[Value]:
    """How far labels are above other classes; the labels of a row end at the first -1.

    torch's own decomposition counts what follows as labels.
    """
    b, x, labels = n.builder, n.tensor("self"), n.tensor("target", "int64")
    is_row = x.ndim < 2
    if is_row:
        x, labels = (b.reshape(v, shape=[1, -1]) for v in (x, labels))
    classes = n.number(x.shape[1], "int64")
    here = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=x.shape[1])
    ends = b.where(b.equal(labels, n.constant(-1, "int64")), here, classes)
    counts = b.less(here, b.min(ends, axes=[1], keepdims=True))
    # N×labels×classes
    at = b.where(counts, labels, n.constant(0, "int64"))
    named = b.logical_and(b.unsqueeze(counts, axes=[2]), b.equal(b.unsqueeze(at, axes=[2]), here))
    is_target = b.any(named, axes=[1])
    margins = b.sub(
        b.add(b.unsqueeze(x, axes=[1]), n.like(1, x)),
        b.unsqueeze(b.gather_elements(x, at, axis=1), axes=[2]),
    )
    others = b.logical_not(b.unsqueeze(is_target, axes=[1]))
    seen = b.logical_and(b.unsqueeze(counts, axes=[2]), others)
    terms = b.where(seen, b.relu(margins), n.like(0, x))
    loss = b.div(b.sum(terms, axes=[1, 2]), n.cast(classes, x.dtype))
    reduction = int(n["reduction"])
    if reduction:
        loss = (b.mean if reduction == 1 else b.sum)(loss, axes=[0])
    elif is_row:
        loss = b.reshape(loss, shape=[])
    return [loss, b.reshape(n.cast(is_target, x.dtype), shape=n.shape_of(n.results[1]))]
