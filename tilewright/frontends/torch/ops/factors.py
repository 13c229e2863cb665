"""Triangular systems, and the factorisations of Cholesky and Householder."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.linalg import (
    Rows,
    fitted,
    least,
    solve_triangular,
    transposed,
    triangle,
    unit_matrix,
    wide,
)
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


@converts("linalg_solve_triangular", "triangular_solve")
def triangular(n: Node) -> Any:
    old = n.op.startswith("triangular")
    a, y = wide(n, "A" if old else "self"), wide(n, "self" if old else "B")
    upper, unit = bool(n.get("upper", True)), bool(n.get("unitriangular", False))
    left = bool(n.get("left", True))
    if old and n.get("transpose", False):
        a, upper = transposed(n, a), not upper
    if not left:
        a, y, upper = transposed(n, a), transposed(n, y), not upper
    x = solve_triangular(n, a, y, upper, unit)
    x = x if left else transposed(n, x)
    if not old:
        return fitted(n, x)[0]
    return fitted(n, x, n.expanded(wide(n, "A"), n.shape_of(n.results[1])))


def factor_cholesky(n: Node, x: Value) -> Value:
    """The lower triangle L with L Lᵀ = x."""
    b, at = n.builder, Rows(n, x)
    zero = n.constant(0.0, "float64")

    def step(k: Value, a: Value) -> Any:
        column = at.at_column(a, k)
        head = b.sqrt(at.at_row(column, k))
        factor = b.where(b.greater_equal(at.row, k), b.div(column, head), zero)
        inner = b.logical_and(b.greater(at.row, k), b.greater(at.column, k))
        change = b.where(inner, b.matmul(factor, transposed(n, factor)), zero)
        return b.where(b.equal(at.column, k), factor, b.sub(a, change))

    made = b.loop(n.number(at.rows, "int64"), [b.trilu(x, k=0, upper=False)], step)
    return b.trilu(made, k=0, upper=False)


@converts("linalg_cholesky_ex", "cholesky")
def cholesky(n: Node) -> Any:
    x, upper = wide(n, "self"), bool(n.get("upper", False))
    made = factor_cholesky(n, transposed(n, x) if upper else x)
    made = transposed(n, made) if upper else made
    results = fitted(n, made, n.full(0, x.shape[:-2], "int32"))
    return results if len(n.results) > 1 else results[0]


@converts("cholesky_solve")
def cholesky_solve(n: Node) -> Value:
    a, y = wide(n, "input2"), wide(n, "self")
    lower = transposed(n, a) if n.get("upper", False) else a
    inner = solve_triangular(n, lower, y, False, False)
    return fitted(n, solve_triangular(n, transposed(n, lower), inner, True, False))[0]


@converts("cholesky_inverse")
def cholesky_inverse(n: Node) -> Value:
    a = wide(n, "self")
    lower = triangle(n, transposed(n, a) if n.get("upper", False) else a, False)
    inner = solve_triangular(n, lower, unit_matrix(n, a), False, False)
    return fitted(n, n.builder.matmul(transposed(n, inner), inner))[0]


def factor_qr(n: Node, x: Value) -> tuple[Value, Value]:
    """Householder's vectors below R, with their factors, in LAPACK's form."""
    b, at = n.builder, Rows(n, x)
    zero, one = n.constant(0.0, "float64"), n.constant(1.0, "float64")
    size = n.shape_of_least(at.rows, at.columns)
    numbers = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=size)

    def step(k: Value, a: Value, factors: Value) -> Any:
        column = at.at_column(a, k)
        head = at.at_row(column, k)
        below = b.where(b.greater(at.row, k), column, zero)
        rest = b.sum(b.mul(below, below), axes=[a.ndim - 2], keepdims=True)
        norm = b.sqrt(b.add(b.mul(head, head), rest))
        beta = b.where(b.less(head, zero), norm, b.neg(norm))
        flat = b.equal(rest, zero)
        beta = b.where(flat, head, beta)
        safe = b.where(b.equal(beta, zero), one, beta)
        tau = b.where(flat, zero, b.div(b.sub(beta, head), safe))
        scale = b.sub(head, beta)
        scale = b.where(b.equal(scale, zero), one, scale)
        v = b.where(b.equal(at.row, k), one, b.div(below, scale))
        change = b.mul(tau, b.matmul(v, b.matmul(transposed(n, v), a)))
        change = b.where(b.greater(at.column, k), change, zero)
        here = b.where(b.equal(at.row, k), beta, b.where(b.greater(at.row, k), v, column))
        a = b.where(b.equal(at.column, k), here, b.sub(a, change))
        tau = b.squeeze(tau, axes=[a.ndim - 1])
        return a, b.where(b.equal(numbers, k), tau, factors)

    start = n.full(0, [*at.batch, size], "float64")
    made = b.loop(least(at.rows, at.columns, n), [x, start], step)
    return made[0], made[1]


def reflect(n: Node, vectors: Value, factors: Value, x: Value) -> Value:
    """H1 H2 … x for Householder's vectors."""
    b, at = n.builder, Rows(n, vectors)
    zero, one = n.constant(0.0, "float64"), n.constant(1.0, "float64")
    count = n.number(factors.shape[-1], "int64")
    last = b.sub(count, n.constant(1, "int64"))

    def step(i: Value, q: Value) -> Any:
        k = b.sub(last, i)
        column = at.at_column(vectors, k)
        v = b.where(b.greater(at.row, k), column, b.where(b.equal(at.row, k), one, zero))
        tau = b.gather(factors, k, axis=factors.ndim - 1)
        tau = b.unsqueeze(tau, axes=[tau.ndim, tau.ndim + 1])
        return b.sub(q, b.mul(tau, b.matmul(v, b.matmul(transposed(n, v), q))))

    return b.loop(count, [x], step)


@converts("geqrf")
def geqrf(n: Node) -> list[Value]:
    return fitted(n, *factor_qr(n, wide(n, "self")))


@converts("linalg_qr")
def qr(n: Node) -> list[Value]:
    b, x, mode = n.builder, wide(n, "A"), n.get("mode", "reduced")
    rows, columns = x.shape[-2:]
    made, factors = factor_qr(n, x)
    size = rows if mode == "complete" else n.shape_of_least(rows, columns)
    upper = b.trilu(made, k=0, upper=True)
    upper = b.slice(upper, starts=[0], ends=[size], axes=[x.ndim - 2])
    if mode == "r":
        return fitted(n, n.full(0, [0], "float64"), upper)
    eye = b.eye(rows=rows, columns=size, dtype="float64")
    start = n.expanded(eye, [*x.shape[:-2], rows, size])
    return fitted(n, reflect(n, made, factors, start), upper)


@converts("linalg_householder_product", "orgqr")
def householder_product(n: Node) -> Value:
    vectors, factors = (
        wide(n, "input" if "input" in n else "self"),
        wide(n, "tau" if "tau" in n else "input2"),
    )
    return fitted(n, reflect(n, vectors, factors, unit_matrix(n, vectors)))[0]


@converts("linalg_matrix_exp")
def matrix_exp(n: Node) -> Value:
    """By the Taylor series of a scaled matrix, and squaring."""
    b, x = n.builder, wide(n, "self")
    halvings = 16
    small = b.mul(x, n.constant(2.0**-halvings, "float64"))
    total = term = unit_matrix(n, x)
    for k in range(1, 10):
        term = b.mul(b.matmul(term, small), n.constant(1 / k, "float64"))
        total = b.add(total, term)
    for _ in range(halvings):
        total = b.matmul(total, total)
    return fitted(n, total)[0]


@converts("ormqr")
def ormqr(n: Node) -> Value:
    """The product of Householder's Q, or its transpose, and a matrix, from either side."""
    b, vectors, factors, x = n.builder, wide(n, "self"), wide(n, "input2"), wide(n, "input3")
    rows = vectors.shape[-2]
    eye = n.expanded(
        b.eye(rows=rows, columns=rows, dtype="float64"), [*vectors.shape[:-2], rows, rows]
    )
    q = reflect(n, vectors, factors, eye)
    q = transposed(n, q) if n.get("transpose", False) else q
    return fitted(n, b.matmul(q, x) if n.get("left", True) else b.matmul(x, q))[0]
