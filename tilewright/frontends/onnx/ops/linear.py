"""Products of matrices."""

from __future__ import annotations

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value


@converts("MatMul")
def matmul(n: Node) -> Value:
    return n.builder.matmul(n[0], n[1])


@converts("Gemm")
def gemm(n: Node) -> Value:
    return n.builder.gemm(
        n[0],
        n[1],
        n.get(2),
        alpha=n.real("alpha", 1.0),
        beta=n.real("beta", 1.0),
        transpose_a=n.flag("transA"),
        transpose_b=n.flag("transB"),
    )


@converts("Einsum")
def einsum(n: Node) -> Value:
    return n.builder.einsum(*n.all, equation=n.text("equation").replace(" ", ""))


@converts("Det")
def det(n: Node) -> Value:
    return n.builder.det(n[0])
