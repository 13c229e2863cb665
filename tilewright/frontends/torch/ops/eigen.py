"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations.

Vectors are determined up to their signs (and rotations, where values are equal).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.torch.node import Node, known_size
from tilewright.frontends.torch.ops.linalg import Rows, fitted, transposed, unit_matrix, wide
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: How often all pairs of rows are rotated; few matrices need more.
_SWEEPS: Final = 12


def symmetric_eigen(n: Node, x: Value) -> tuple[Value, Value]:
    """Eigenvalues in ascending order, and eigenvectors as columns."""
    b, at = n.builder, Rows(n, x)
    size = known_size(x.tensor.shape[-1])
    pairs = [(p, q) for p in range(size) for q in range(p + 1, size)] * _SWEEPS
    zero, one = n.constant(0.0, "float64"), n.constant(1.0, "float64")
    two = n.constant(2.0, "float64")
    eye, vectors = unit_matrix(n, x), unit_matrix(n, x)

    def rotation(p: Value, q: Value, a: Value) -> Value:
        rows_p, rows_q = at.at_row(a, p), at.at_row(a, q)
        app, apq, aqq = at.at_column(rows_p, p), at.at_column(rows_p, q), at.at_column(rows_q, q)
        flat = b.equal(apq, zero)
        tau = b.div(b.sub(aqq, app), b.mul(two, b.where(flat, one, apq)))
        sign = b.where(b.less(tau, zero), b.neg(one), one)
        t = b.div(sign, b.add(b.abs(tau), b.sqrt(b.add(one, b.mul(tau, tau)))))
        t = b.where(flat, zero, t)
        c = b.rsqrt(b.add(one, b.mul(t, t)))
        s = b.mul(t, c)
        is_p, is_q = b.equal(at.row, p), b.equal(at.row, q)
        col_p, col_q = b.equal(at.column, p), b.equal(at.column, q)
        on = b.logical_or(b.logical_and(is_p, col_p), b.logical_and(is_q, col_q))
        made = b.where(on, c, eye)
        made = b.where(b.logical_and(is_p, col_q), s, made)
        return b.where(b.logical_and(is_q, col_p), b.neg(s), made)

    if pairs:
        table = np.array(pairs, np.int64)
        firsts, seconds = b.constant(table[:, 0].copy()), b.constant(table[:, 1].copy())

        def step(k: Value, a: Value, v: Value) -> Any:
            turn = rotation(b.gather(firsts, k, axis=0), b.gather(seconds, k, axis=0), a)
            return b.matmul(transposed(n, turn), b.matmul(a, turn)), b.matmul(v, turn)

        x, vectors = b.loop(n.constant(len(pairs), "int64"), [x, vectors], step)
    values = b.sum(b.where(b.equal(at.row, at.column), x, zero), axes=[x.ndim - 1])
    if size == 0:
        return values, vectors
    values, order = b.sort(values, axis=values.ndim - 1)
    place = n.expanded(b.unsqueeze(order, axes=[order.ndim - 1]), vectors.shape)
    return values, b.gather_elements(vectors, place, axis=vectors.ndim - 1)


def symmetric(n: Node, x: Value, lower: bool) -> Value:
    """The symmetric matrix whose lower (or upper) triangle is that of x."""
    b = n.builder
    half = b.trilu(x, k=0, upper=not lower)
    strict = b.trilu(x, k=-1 if lower else 1, upper=not lower)
    return b.add(half, transposed(n, strict))


@converts("_linalg_eigh")
def eigh(n: Node) -> list[Value]:
    lower = str(n.get("UPLO", "L")).upper() == "L"
    values, vectors = symmetric_eigen(n, symmetric(n, wide(n, "A"), lower))
    if not n.get("compute_v", True):
        vectors = n.full(0, [0], "float64")
    return fitted(n, values, vectors)


def thin_svd(n: Node, x: Value) -> tuple[Value, Value, Value]:
    """U, the singular values and V, by the eigenvectors of the smaller one of xᵀx and xxᵀ."""
    b = n.builder
    rows, columns = map(known_size, x.shape[-2:])
    tall = x if rows >= columns else transposed(n, x)
    values, right = symmetric_eigen(n, b.matmul(transposed(n, tall), tall))
    axis = values.ndim - 1
    values, right = b.flip(values, axes=[axis]), b.flip(right, axes=[axis + 1])
    values = b.sqrt(b.maximum(values, n.constant(0.0, "float64")))
    safe = b.maximum(values, n.constant(1e-300, "float64"))
    left = b.div(b.matmul(tall, right), b.unsqueeze(safe, axes=[axis]))
    return (left, values, right) if rows >= columns else (right, values, left)


@converts("_linalg_svd")
def svd(n: Node) -> list[Value]:
    x = wide(n, "A")
    left, values, right = thin_svd(n, x)
    if not n.get("compute_uv", True):
        nothing = n.full(0, [0], "float64")
        return fitted(n, nothing, values, nothing)
    if n.get("full_matrices", False) and x.shape[-2] is not x.shape[-1]:
        raise UserError("a full singular value decomposition", remedy="use full_matrices=False")
    return fitted(n, left, values, transposed(n, right))


@converts("linalg_pinv")
def pinv(n: Node) -> Value:
    """V / s Uᵀ; singular values below a bound count as zeros."""
    b, x = n.builder, wide(n, "self")
    if n.get("hermitian", False):
        x = symmetric(n, x, True)
    left, values, right = thin_svd(n, x)
    axis = values.ndim - 1
    if x.tensor.size == 0:
        return fitted(n, b.matmul(right, transposed(n, left)))[0]
    absolute, relative = n.get("atol"), n.get("rtol")
    if relative is None:
        size = max(map(known_size, x.shape[-2:]))
        eps = float(np.finfo(n.dtype.numpy).eps) * size
        relative = 0.0 if absolute is not None else eps
    most = b.max(values, axes=[axis], keepdims=True)
    bound = b.mul(_as_column(n, relative), most)
    if absolute is not None:
        bound = b.maximum(bound, _as_column(n, absolute))
    kept = b.greater(values, bound)
    inverse = b.where(kept, b.reciprocal(values), n.constant(0.0, "float64"))
    scaled = b.mul(right, b.unsqueeze(inverse, axes=[axis]))
    return fitted(n, b.matmul(scaled, transposed(n, left)))[0]


def _as_column(n: Node, bound: Any) -> Value:
    """A bound for each matrix, with a dimension for its values."""
    value = n.number(bound, "float64")
    return n.builder.unsqueeze(value, axes=[value.ndim])
