"""Products of matrices and Einstein sums against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, find_op
from tilewright.support.errors import UserError

RNG = np.random.default_rng(6)


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def test_matmul() -> None:
    check("matmul", [normal(7, 13), normal(13, 5)])
    check("matmul", [normal(2, 3, 9), normal(9, 17)], symbolic=False)
    check("matmul", [normal(2, 1, 3, 5), normal(4, 5, 6)], symbolic=False)


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4,), (4, 3)), ((3, 4), (4,)), ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)), ((2, 3, 4), (2, 4, 5)), ((3, 1, 2, 4), (5, 4, 2)), ((0, 4), (4, 3)),
    ((1, 1), (1, 1)), ((2, 3), (3, 0))])  # fmt: skip
def test_matmul_broadcasts_as_numpy_does(shapes: Any) -> None:
    a, b = (normal(*s) for s in shapes)
    check_definition("matmul", [a, b], expected=np.matmul(a, b))


def test_matmul_of_nothing_is_zero() -> None:
    check("matmul", [normal(2, 0), normal(0, 3)], expected=np.zeros((2, 3), "f4"))


@pytest.mark.parametrize(
    "dtype", ["int8", "int32", "int64", "uint8", "float64", "float16", ml_dtypes.bfloat16]
)
def test_matmul_of_types(dtype: Any) -> None:
    a, b = (RNG.integers(0, 5, s).astype(dtype) for s in ((3, 9), (9, 4)))
    check_definition("matmul", [a, b], symbolic=False)
    check_definition("matmul", [a, b.T], transpose_b=True)
    check_definition("matmul", [a.T, b], transpose_a=True, symbolic=False)


def test_gemm_and_dense() -> None:
    a, b, c = normal(5, 7), normal(7, 6), normal(6)
    check("gemm", [a, b, c], symbolic=False)
    check_definition("gemm", [a.T, b.T, c], transpose_a=True, transpose_b=True, alpha=0.5, beta=2.0)
    check_definition("gemm", [a, b], alpha=0.25)
    check_definition("gemm", [a, b, np.float32(3)], beta=0.5, symbolic=False)
    check_definition("gemm", [a.astype("f2"), b.astype("f2"), c.astype("f2")], symbolic=False)
    check_definition("gemm", [np.eye(3, dtype="i4"), np.full((3, 3), 5, "i4")], alpha=2.0)
    large = np.full((2, 2), 2**30, "i4")
    check_definition("gemm", [np.eye(2, dtype="i4"), large, large], alpha=2.0, beta=3.0)
    check("dense", [normal(2, 3, 7), normal(5, 7), normal(5)], symbolic=False)
    check_definition("dense", [normal(7), normal(5, 7)])


EQUATIONS = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "bij,bkj->bik": [(2, 3, 4), (2, 5, 4)],
    "bhid,bhjd->bhij": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "i->": [(4,)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "ij->ji": [(3, 4)],
    "i,j->ij": [(3,), (4,)],
    "...ij,...jk->...ik": [(2, 1, 3, 4), (5, 4, 2)],
    "b...,b...->b...": [(2, 3, 4), (2, 3, 1)],
    "ij,jk": [(3, 4), (4, 5)],
    "a,ab,abc->abc": [(2,), (2, 3), (2, 3, 4)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "ij,ij,ij->": [(2, 3), (2, 3), (2, 3)],
}


@pytest.mark.parametrize("equation", list(EQUATIONS))
def test_einsum(equation: str) -> None:
    xs = [normal(*s) for s in EQUATIONS[equation]]
    check_definition("einsum", xs, equation=equation, expected=np.einsum(equation, *xs), rtol=1e-4)


def test_einsum_natively() -> None:
    check("einsum", [normal(2, 3, 4), normal(2, 5, 4)], equation="bij, bkj -> bik", symbolic=False)
    check("einsum", [normal(3, 4)], equation="ij->j", symbolic=False)


def test_what_is_refused() -> None:
    b = Builder()
    x, y = b.input("x", "f32", (3, 4)), b.input("y", "f32", (5, 6))
    with pytest.raises(UserError, match="rows and columns that are multiplied differ: 4 and 5"):
        b.output(x @ y)
    with pytest.raises(UserError, match="vectors and matrices, not scalars"):
        b.matmul(x, 1.0)
    with pytest.raises(UserError, match="the rows of weights and the bias differ: 5 and 4"):
        b.dense(b.input("z", "f32", (2, 6)), y, b.input("w", "f32", (4,)))
    for equation, reason in {
        "ij->ij": "1 terms for 2 operands",
        "ij,j->i": "does not name the 2 dimensions",
        "ij,kl->m": "which no operand has",
        "ij,kl->ii": "names a letter twice",
        "i1,kl->i": "is no list of letters",
        "i...,kl->i": "leaves out what ... stands for",
    }.items():
        with pytest.raises(UserError, match=reason):
            b.einsum(x, y, equation=equation)
    with pytest.raises(UserError, match="different extents for i"):
        b.einsum(x, y, equation="ij,ik->jk")


def test_what_symbolic_dimensions_must_fulfil() -> None:
    b = Builder()
    x, y = b.input("x", "f32", ("n", "k")), b.input("y", "f32", ("m", 4))
    matmul = find_op("matmul")
    conditions = matmul.conditions(*matmul.bind([x, y], {}))
    assert [str(c) for c, _ in conditions] == ["k == m"]
    assert "the rows and columns that are multiplied differ: k and m" in conditions[0][1]
