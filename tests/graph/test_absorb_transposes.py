"""Products that read their operands as they were before they were transposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.graph import Builder, Value, evaluate, verify
from tilewright.graph import Module as Graph
from tilewright.graph.passes import absorb_transposes

RNG = np.random.default_rng(0)
Q, K = (2, 5, 3, 4), (2, 6, 3, 4)


def equations(graph: Graph) -> list[str]:
    calls = [b.expr for b in graph.main.body]
    return [c.attrs["equation"] for c in calls if c.op.name == "einsum"]  # type: ignore[attr-defined]


def absorbed(body: Callable[[Builder, Value, Value], Any], a: Any = Q, b: Any = K) -> Graph:
    """The graph after the pass, which computes the same."""
    builder = Builder()
    values = builder.input("a", "f32", a), builder.input("b", "f32", b)
    builder.output(body(builder, *values))
    before = builder.build()
    after = absorb_transposes(before)
    verify(after)
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in (a, b)]
    for x, y in zip(evaluate(before, arrays), evaluate(after, arrays), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    return after


def test_heads_between_rows() -> None:
    def scores(b: Builder, q: Value, k: Value) -> Value:
        heads = b.transpose(q, axes=(0, 2, 1, 3))
        return b.matmul(heads, b.transpose(k, axes=(0, 2, 3, 1)))

    graph = absorbed(scores)
    assert equations(graph) == ["aibk,ajbk->abij"] and len(graph.main.body) == 1


@pytest.mark.parametrize("flag", [False, True])
def test_one_operand_and_flags(flag: bool) -> None:
    def product(b: Builder, p: Value, v: Value) -> Value:
        return b.matmul(p, b.transpose(v, axes=(0, 2, 1, 3)), transpose_b=flag)

    second = (2, 4, 3, 6) if not flag else (2, 6, 3, 4)
    graph = absorbed(product, (2, 3, 5, 4), second)
    assert equations(graph) == ["abik,ajbk->abij" if flag else "abik,akbj->abij"]


def test_einsums() -> None:
    def product(b: Builder, x: Value, y: Value) -> Value:
        turned = b.transpose(x, axes=(0, 2, 1, 3))
        return b.einsum(turned, y, equation="xyik, xjyk -> xiyj")

    assert equations(absorbed(product)) == ["xiyk,xjyk->xiyj"]


def test_batches_that_would_be_innermost_are_copied() -> None:
    def product(b: Builder, x: Value, y: Value) -> Value:
        return b.matmul(b.transpose(x, axes=(2, 0, 1)), y)

    assert not equations(absorbed(product, (5, 4, 3), (3, 4, 6)))


def test_what_others_read_too_is_copied() -> None:
    def product(b: Builder, x: Value, y: Value) -> Value:
        heads = b.transpose(x, axes=(0, 2, 1, 3))
        scores = b.matmul(heads, b.transpose(y, axes=(0, 2, 3, 1)))
        return b.add(b.sum(heads, axes=(-1,), keepdims=True), scores)

    assert equations(absorbed(product)) == ["abik,ajbk->abij"]


def test_broadcast_batches_and_letters_named_twice_stay() -> None:
    def product(b: Builder, x: Value, y: Value) -> Value:
        return b.matmul(b.transpose(x, axes=(0, 2, 1, 3)), y)

    assert not equations(absorbed(product, (2, 5, 3, 4), (4, 6)))

    def diagonal(b: Builder, x: Value, y: Value) -> Value:
        return b.einsum(b.transpose(x, axes=(1, 0)), y, equation="ik,kk->ik")

    assert equations(absorbed(diagonal, (4, 5), (4, 4))) == ["ik,kk->ik"]


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "turned"), [(16, 9, True), (16, 8, False), (9, 7, False)]
)
def test_rows_of_weights_are_whole_vectors(
    rows: int, columns: int, turned: bool, flag: bool
) -> None:
    weights = RNG.standard_normal((rows, columns)).astype(np.float32)

    def product(b: Builder, x: Value, _: Value) -> Value:
        return b.matmul(x, b.constant(weights), transpose_b=flag)

    graph = absorbed(product, (5, columns if flag else rows), (1, 1))
    (call,) = [b.expr for b in graph.main.body]
    assert call.attrs["transpose_b"] == (flag != turned)  # type: ignore[attr-defined]
    assert call.args[1].shape == ((columns, rows) if turned else (rows, columns))  # type: ignore[attr-defined]
