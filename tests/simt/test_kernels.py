"""Kernels as text: which threads do what, and what expressions mean, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.simt.kernel_text import execute, zeros
from tilewright.ir import (
    Buffer,
    For,
    Function,
    Store,
    Var,
    const,
    function_text,
    interpret,
    parse_function,
    select,
    seq,
)
from tilewright.simt import run
from tilewright.support.errors import UserError


def test_what_stands_in_no_phase_is_done_by_one_thread() -> None:
    a = zeros(12)
    execute(
        """
        def k(A: f32[12]):
            for b in thread(3, "blockIdx.x"):
                S = alloc(f32[1], scope="shared")
                S[0] = 0.0
                for i in range(5):
                    S[0] = S[0] + 1.0
                barrier()
                for y in thread(2, "threadIdx.y"):
                    for x in thread(2, "threadIdx.x"):
                        A[b * 4 + y * 2 + x] = S[0]
        """,
        a,
    )
    assert (a == 5).all()


def test_phases_may_be_smaller_than_the_block() -> None:
    a = zeros(64)
    execute(
        """
        def k(A: f32[64]):
            for b in thread(1, "blockIdx.x"):
                for y in thread(4, "threadIdx.y"):
                    for x in thread(8, "threadIdx.x"):
                        A[y * 8 + x] = 1.0
                for x in thread(16, "threadIdx.x"):
                    A[32 + x] = 2.0
                for z in thread(2, "threadIdx.z"):
                    A[48 + z] = 3.0
        """,
        a,
    )
    np.testing.assert_array_equal(a, [1] * 32 + [2] * 16 + [3] * 2 + [0] * 14)


def test_grids_have_three_axes() -> None:
    a = np.zeros((2, 3, 4), "i8")
    text = """
        def k(A: i64[24]):
            for z in thread(2, "blockIdx.z"):
                for y in thread(3, "blockIdx.y"):
                    for x in thread(4, "blockIdx.x"):
                        A[z * 12 + y * 4 + x] = z * 100 + y * 10 + x
        """
    execute(text, a)
    z, y, x = np.indices(a.shape)
    np.testing.assert_array_equal(a, z * 100 + y * 10 + x)


def test_threads_leave_loops_apart() -> None:
    """Loops with an extent for each thread, `while`, and branches inside."""
    n, collatz, odd = np.array([1, 7, 27, 97]), zeros(4, "i8"), zeros(4, "i8")
    execute(
        """
        def k(N: i64[4], C: i64[4], O: i64[4]):
            for b in thread(2, "blockIdx.x"):
                for t in thread(2, "threadIdx.x"):
                    x = alloc(i64[1], scope="local")
                    x[0] = N[b * 2 + t]
                    C[b * 2 + t] = 0
                    O[b * 2 + t] = 0
                    while x[0] > 1:
                        C[b * 2 + t] = C[b * 2 + t] + 1
                        if x[0] % 2 == 0:
                            x[0] = x[0] // 2
                        else:
                            x[0] = x[0] * 3 + 1
                    for i in range(N[b * 2 + t]):
                        O[b * 2 + t] = O[b * 2 + t] + i
        """,
        n,
        collatz,
        odd,
    )
    np.testing.assert_array_equal(collatz, [0, 16, 111, 118])
    np.testing.assert_array_equal(odd, n * (n - 1) // 2)


def test_a_name_keeps_the_value_that_it_was_given() -> None:
    a = np.arange(8, dtype="f4")
    execute(
        """
        def k(A: f32[8]):
            for b in thread(1, "blockIdx.x"):
                for t in thread(8, "threadIdx.x"):
                    L = alloc(f32[2], scope="local")
                    L[0] = A[t]
                    x = let(L[0])
                    L[0] = 0.0
                    A[t] = x + L[0]
        """,
        a,
    )
    np.testing.assert_array_equal(a, np.arange(8))


def test_vectors_with_masks_on_both_sides() -> None:
    a, b = np.arange(10, dtype="f4"), np.full(12, -1, "f4")
    execute(
        """
        def k(A: f32[10], B: f32[12]):
            for b in thread(1, "blockIdx.x"):
                for t in thread(3, "threadIdx.x"):
                    v = let(load(A[ramp(t * 4, 1, 4)], ramp(t * 4, 1, 4) < broadcast(10, 4)))
                    store(
                        B[ramp(t * 4, 1, 4)],
                        v * broadcast(f32(t), 4),
                        ramp(0, 1, 4) != broadcast(t, 4),
                    )
        """,
        a,
        b,
    )
    np.testing.assert_array_equal(b, [-1, 0, 0, 0, 4, -1, 6, 7, 16, 18, -1, 0])


def test_the_host_runs_loops_and_conditions_around_launches() -> None:
    text = """
        def k(A: f32[n], steps: i64):
            half = let(n // 2)
            for s in range(steps):
                if s % 2 == 0:
                    for b in thread(half, "blockIdx.x"):
                        A[b] = A[b] + 1.0
                else:
                    for b in thread(n - half, "blockIdx.x"):
                        A[b + half] = A[b + half] + 2.0
            assert steps < 9, ("{} steps are too many", steps)
        """
    a = zeros(5)
    execute(text, a, 5)
    np.testing.assert_array_equal(a, [3, 3, 4, 4, 4])
    with pytest.raises(UserError, match="k stopped: 9 steps are too many"):
        execute(text, a, 9)


@pytest.mark.parametrize("given", [(zeros(4), 1, 2, 3), (zeros(4),), (zeros(3, "f8"), 1, 4)])
def test_arguments_that_do_not_fit(given: Any) -> None:
    text = """
        def k(A: f32[n], m: i64):
            for b in thread(m, "blockIdx.x"):
                A[b] = 1.0
        """
    with pytest.raises(UserError, match=r"k (was given|cannot take this array for A)"):
        execute(text, *given)


EXPRESSIONS = """
def k(A: {0}[64], B: {0}[64], C: {1}[64]):
    for b in thread(2, "blockIdx.x"):
        for t in thread(32, "threadIdx.x"):
            a = let(A[b * 32 + t])
            b2 = let(B[b * 32 + t])
            C[b * 32 + t] = {2}
"""


@pytest.mark.parametrize(
    ("of", "to", "expression"),
    [
        ("i8", "i8", "a * b2 + a"),
        ("i32", "i32", "a // b2 + a % b2"),
        ("i32", "u8", "u8(a)"),
        ("f32", "i8", "i8(a * 100.0)"),
        ("f32", "f32", "max(a, b2) / min(a, b2)"),
        ("f16", "f16", "a * b2 + a"),
        ("bf16", "bf16", "a * b2 + a"),
        ("f64", "bf16", "bf16(a)"),
        ("f32", "bool", "isnan(a) or a < b2"),
        ("f32", "f32", "exp(a) if a > b2 else fma(a, b2, a)"),
        ("i64", "i64", "popcount(a) + clz(b2)"),
    ],
)
def test_expressions_mean_what_the_interpreter_takes_them_for(
    of: str, to: str, expression: str
) -> None:
    """Bit for bit, with NaN, infinity and zeros among the operands."""
    function = parse_function(EXPRESSIONS.format(of, to, expression))
    a, b, c = (buffer.dtype.numpy for buffer in function.buffers)
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(64) * 4).astype(a) if of[0] in "fb" else rng.integers(-99, 99, 64)
    y = (rng.standard_normal(64) * 4).astype(b) if of[0] in "fb" else rng.integers(-9, 9, 64)
    x, y = x.astype(a), y.astype(b)
    if of[0] in "fb":
        x[:5], y[3:8] = [np.nan, np.inf, -np.inf, 0, -0.0], [np.nan, 0, -0.0, np.inf, 1]
    got, wanted = np.zeros(64, c), np.zeros(64, c)
    run(function, [x, y, got])
    interpret(function, x, y, wanted)
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), wanted.view(f"u{got.itemsize}"))


def test_barriers_print_and_parse() -> None:
    text = 'def k(A: f32[4]):\n    for b in thread(4, "blockIdx.x"):\n        barrier()\n'
    assert function_text(parse_function(text)) == text


def test_deep_expressions_are_no_trouble() -> None:
    a, b, block = Buffer("A", "f32", (4,)), Buffer("B", "f32", (2,)), Var("b")
    total, chosen = a[0], a[0]
    for k in range(3000):
        total = total + a[k % 4]
    for k in range(100):
        chosen = select(a[k % 3] > float(k), a[k % 4], chosen + a[3])
    body = seq(Store(b, (const(0),), total), Store(b, (const(1),), chosen))
    launch = For(block, const(1), "thread", body, axis="blockIdx.x")
    got, wanted = zeros(2), zeros(2)
    numbers = np.arange(4, dtype="f4")
    run(Function("k", (a, b), launch), [numbers, got])
    interpret(Function("k", (a, b), body), numbers, wanted)
    np.testing.assert_array_equal(got, wanted)


def test_read_as_plain_loops_a_kernel_means_the_same() -> None:
    text = """
def k(A: f32[64], B: f32[64]):
    for b in thread(4, "blockIdx.x"):
        S = alloc(f32[16], scope="shared")
        for t in thread(16, "threadIdx.x"):
            S[t] = A[b * 16 + t]
        barrier()
        for t in thread(16, "threadIdx.x"):
            B[b * 16 + t] = S[15 - t] + S[(t * 3 + 1) % 16]
"""
    function = parse_function(text)
    a, got, wanted = np.random.default_rng(1).standard_normal(64).astype("f4"), zeros(64), zeros(64)
    run(function, [a, got])
    interpret(function, a, wanted)
    np.testing.assert_array_equal(got, wanted)
