"""Losses that torch does not take apart, or not rightly."""

from __future__ import annotations

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


@converts("multilabel_margin_loss_forward")
def multilabel_margin_loss(n: Node) -> list[Value]:
    """How far labels are above other classes; the labels of a row end with the first -1.

    torch's own decomposition lets what is behind that count as labels.
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
