"""Transforms, and complex numbers: tensors with a last dimension of real and imaginary parts."""

from __future__ import annotations

from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr


@converts("RFFT2D")
def rfft2d(n: Node) -> Value:
    """The transform of the last two dimensions, cut or filled with zeros to a length each; of the
    last one half, which tells the other."""
    b, x = n.builder, n[0]
    rows, columns = n.dims(1, 2)
    x = _fitted(n, _fitted(n, x, x.ndim - 2, rows), x.ndim - 1, columns)
    y = b.unsqueeze(x, axes=[x.ndim])
    y = b.concat(y, b.full(n.scalar(0, y), shape=y.shape), axis=x.ndim)
    y = b.dft(y)
    half = as_expr(columns) // 2 + 1
    y = b.slice(y, starts=[0], ends=[half], axes=[x.ndim - 1])
    if n.is_equal(rows, 1):
        return y
    order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2, x.ndim]
    return b.transpose(b.dft(b.transpose(y, axes=order)), axes=order)


def _fitted(n: Node, x: Value, axis: int, size: Dim) -> Value:
    if n.is_equal(x.shape[axis], size):
        return x
    missing = as_expr(size) - x.shape[axis]
    after = [missing if k == axis else 0 for k in range(x.ndim)]
    return n.builder.pad(x, before=[0] * x.ndim, after=after)


@converts("REAL")
def real(n: Node) -> Value:
    return n.builder.index(n[0], (..., 0))


@converts("IMAG")
def imag(n: Node) -> Value:
    return n.builder.index(n[0], (..., 1))


@converts("COMPLEX_ABS")
def complex_abs(n: Node) -> Value:
    return n.builder.l2(n[0], axes=[n[0].ndim - 1])
