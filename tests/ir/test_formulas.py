"""What a formula computes: products of two elements, and what is cheap to compute again."""

from __future__ import annotations

from tilewright.ir import (
    Buffer,
    Call,
    Expr,
    Var,
    cast,
    cost_of,
    is_cheap,
    product_of_loads,
    walk_expr,
    work_of,
)

A, B = Buffer("A", "float32", (8, 8)), Buffer("B", "float16", (8, 8))
PLACES = Buffer("P", "int64", (8,))
i, j, k = Var("i"), Var("j"), Var("k")


def test_products_of_two_elements() -> None:
    a, b = A[i, k], B[k, j]
    assert product_of_loads(a * cast(b, "float32")) == (a, b)
    assert product_of_loads(a + cast(b, "float32")) is None
    assert product_of_loads(a * 2.0) is None


def test_elements_at_places_that_are_read_make_no_contraction() -> None:
    assert product_of_loads(A[i, k] * A[PLACES[k], j]) is None


def test_cost_counts_operations_on_elements() -> None:
    assert cost_of(A[i * 4 + 1, k]) == 0
    assert cost_of(A[i, k] * 2.0 + 1.0) == 2
    assert cost_of(Call("exp", (A[i, k],), A.dtype)) > cost_of(A[i, k] * A[i, k])


def test_work_counts_loads_and_index_arithmetic() -> None:
    assert work_of(walk_expr(A[i * 4 + 1, k])) == 3
    assert work_of(walk_expr(A[i // 3, k])) > work_of(walk_expr(A[i + 3, k]))


def test_what_is_cheap_is_computed_again() -> None:
    def scaled(times: int) -> Expr:
        value: Expr = A[i, k]
        for n in range(times):
            value = value * float(n + 2)
        return value

    assert is_cheap([scaled(8)]) and not is_cheap([scaled(9)])
    assert not is_cheap([scaled(5), scaled(5)])
