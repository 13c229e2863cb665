"""Products of matrices."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("MatMul")
def matmul(n: Node) -> Value:
    return _product(n, n.flag("transpose_a"), n.flag("transpose_b"))


@converts("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(n: Node) -> Value:
    return _product(n, n.flag("adj_x"), n.flag("adj_y"))


def _product(n: Node, transpose_a: bool, transpose_b: bool) -> Value:
    a, b = n[0], n[1]
    if a.ndim < 2 or b.ndim < 2:
        raise UserError(f"a product of {a} and {b}")
    return n.builder.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


@converts("_FusedMatMul")
def fused_matmul(n: Node) -> Value:
    result = _product(n, n.flag("transpose_a"), n.flag("transpose_b"))
    return fused(n, result, n[2])


def fused(n: Node, result: Value, bias: Value) -> Value:
    """The epilogue of a product or a convolution."""
    attributes: dict[str, dict[str, Any]] = {
        "leaky_relu": {"alpha": n.real("leakyrelu_alpha", 0.2)},
        "gelu_tanh": {},
    }
    for name in n.texts("fused_ops"):
        op = _FUSED.get(name)
        if name == "BiasAdd":
            result = result + bias
        elif name == "Relu6":
            result = n.builder.clip(result, n.scalar(0, result), n.scalar(6, result))
        elif op is not None:
            result = n.builder.emit(op, result, **attributes.get(op, {}))
        else:
            raise UserError(f"{n.name} is fused with {name}")
    return result


_FUSED = {
    "Elu": "elu",
    "GeluApproximate": "gelu_tanh",
    "GeluExact": "gelu_erf",
    "LeakyRelu": "leaky_relu",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
}


@converts("Einsum")
def einsum(n: Node) -> Value:
    return n.builder.einsum(*n.all, equation=n.text("equation").replace(" ", ""))


@converts("MatrixBandPart")
def band_part(n: Node) -> Value:
    """Diagonals from `lower` below to `upper` above the main one; all, where they are negative."""
    x, b = n[0], n.builder
    lower, upper = n.number(1), n.number(2)
    if lower >= 0:
        x = b.trilu(x, k=-lower, upper=True)
    return b.trilu(x, k=upper, upper=False) if upper >= 0 else x


@converts("MatrixDeterminant")
def determinant(n: Node) -> Value:
    return n.builder.det(n[0])


@converts("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diag(n: Node) -> Value:
    x, b = n[0], n.builder
    if n.op != "MatrixDiag" and (n.number(1) != 0 or n.numbers(2) != [-1]):
        raise UserError(f"{n.name} makes other diagonals than the main one")
    size = x.shape[-1]
    eye = b.eye(rows=size, columns=size, dtype="bool")
    return b.where(eye, b.unsqueeze(x, axes=[-1]), n.scalar(0, x))


@converts("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def matrix_diag_part(n: Node) -> Value:
    x, b = n[0], n.builder
    if n.op != "MatrixDiagPart" and n.number(1) != 0:
        raise UserError(f"{n.name} takes another diagonal than the main one")
    eye = b.eye(rows=x.shape[-2], columns=x.shape[-1], dtype="bool")
    rows, columns = (dim_number(d) for d in x.shape[-2:])
    if not isinstance(rows, int) or not isinstance(columns, int):
        # Which axis is the shorter one decides how the diagonal is taken.
        n.require_shape(0)
        raise UserError(f"{n.name} takes the diagonal of {x}")
    return b.sum(b.where(eye, x, n.scalar(0, x)), axes=[-2 if rows > columns else -1])
