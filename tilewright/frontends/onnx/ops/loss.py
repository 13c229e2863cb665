"""Losses."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value


@converts("NegativeLogLikelihoodLoss")
def nll_loss(n: Node) -> Value:
    return n.builder.nll_loss(n[0], n[1], n.get(2), **_attributes(n))


@converts("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(n: Node) -> list[Value]:
    return list(n.builder.softmax_cross_entropy(n[0], n[1], n.get(2), **_attributes(n)))


def _attributes(n: Node) -> dict[str, Any]:
    return {
        "reduction": n.text("reduction", "mean"),
        "ignore_index": n.integer("ignore_index", None),
    }
