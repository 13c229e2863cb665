"""Long chains of operations are emitted interleaved, and give the same results as one by one."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright.codegen.llvm.interleave import interleaved
from tilewright.ir import (
    Buffer,
    Expr,
    For,
    Load,
    Ramp,
    Store,
    Var,
    const,
    interpret,
    parse_function,
)

#: Registers for four and for two vectors side by side.
WIDE, NARROW = (tw.Target.of(f"llvm -mcpu={cpu}") for cpu in ("skylake-avx512", "haswell"))
X, Y, Z = (Buffer(n, "float32", (64,)) for n in "XYZ")


def vector(k: int) -> Expr:
    return Ramp(const(4 * k), const(1), 4)


def chained(value: Expr, length: int) -> Expr:
    for _ in range(length):
        value = value * value + 1.0
    return value


def store(k: int, source: Buffer = X, target: Buffer = Y, at: int | None = None) -> Store:
    return Store(target, (vector(k),), chained(Load(source, (vector(k if at is None else at),)), 8))


def sizes(*stores: Store) -> list[int]:
    return [len(g) if isinstance(g, list) else 0 for g in interleaved(stores, WIDE)]


def test_so_many_at_a_time() -> None:
    assert sizes(*(store(k) for k in range(10))) == [4, 4, 2]
    assert len(interleaved([store(k) for k in range(10)], NARROW)) == 5


def test_short_chains_stay_apart() -> None:
    short = [Store(Y, (vector(k),), chained(Load(X, (vector(k),)), 2)) for k in range(3)]
    assert sizes(*short) == [1, 1, 1]


def test_what_reads_a_result_waits_for_it() -> None:
    assert sizes(store(0), store(1, source=Y, at=0), store(2)) == [1, 2]


def test_other_statements_come_between() -> None:
    loop = For(Var("i"), const(2), "serial", store(3))
    assert [type(g) for g in interleaved([store(0), store(1), loop, store(2)], WIDE)] == [
        list,
        For,
        list,
    ]
    assert sizes(store(0), store(1, target=Z)) == [1, 1]


def test_results_are_those_of_one_after_the_other() -> None:
    text = """
def f(X: f32[40], Y: f32[40]):
    for i in unrolled(9):
        for j in vectorized(4):
            Y[i * 4 + j] = sigmoid(X[i * 4 + j]) * X[(i * 4 + j) % 7]
    for i in unrolled(9):
        for j in vectorized(4):
            Y[(i + 1) * 4 + j] = tanh(Y[i * 4 + j] * 3.0 - 1.0)
"""
    x = np.random.default_rng(3).standard_normal(40).astype(np.float32)
    got, expected = np.zeros(40, np.float32), np.zeros(40, np.float32)
    tw.build(parse_function(text))(x, got)
    interpret(parse_function(text), x, expected)
    np.testing.assert_allclose(got, expected, rtol=2e-6)
