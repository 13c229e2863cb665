"""The reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir import (
    Buffer,
    Expr,
    Function,
    Store,
    Var,
    const,
    interpret,
    parse_function,
)
from tilewright.support.errors import UserError

RNG = np.random.default_rng(7)


def run(text: str, *args: Any, **named: Any) -> None:
    interpret(parse_function(text), *args, **named)


MATMUL = """
def matmul(A: f32[m, k], B: f32[k, n], C: f32[m, n]):
    for i in range(m):
        for j in range(n):
            for p in range(k):
                with block("C", vi=spatial(m, i), vj=spatial(n, j), vp=reduce(k, p)):
                    reads(A[vi, vp], B[vp, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = 0.0
                    C[vi, vj] = C[vi, vj] + A[vi, vp] * B[vp, vj]
"""


def test_a_reduction_starts_from_its_init() -> None:
    a, b = (RNG.standard_normal(s).astype("f4") for s in ((5, 7), (7, 6)))
    c = np.full((5, 6), np.nan, "f4")
    run(MATMUL, a, b, C=c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


SPLIT = """
def f(A: f32[m, n], S: f32[m]):
    for o in range((n + 3) // 4):
        for i in range((m + 3) // 4):
            for p in unrolled(4):
                for ii in unrolled(4):
                    with block("S", v=spatial(m, i * 4 + ii), r=reduce(n, o * 4 + p)):
                        where(i * 4 + ii < m and o * 4 + p < n)
                        reads(A[v, r])
                        writes(S[v])
                        with init():
                            S[v] = 1.0
                        S[v] = S[v] + A[v, r]
"""


def test_a_reduction_over_nothing_is_its_init() -> None:
    c = np.full((5, 6), np.nan, "f4")
    run(MATMUL, np.zeros((5, 0), "f4"), np.zeros((0, 6), "f4"), C=c)
    np.testing.assert_array_equal(c, np.zeros((5, 6)))
    for n in (0, 3, 5):
        s = np.full(6, np.nan, "f4")
        run(SPLIT, np.ones((6, n), "f4"), s)
        np.testing.assert_array_equal(s, np.full(6, n + 1))


def test_predicates_bound_split_loops() -> None:
    a = np.zeros(10, "i8")
    run(
        """
def f(A: i64[n]):
    for o in range((n + 3) // 4):
        for i in unrolled(4):
            with block("b", v=spatial(n, o * 4 + i)):
                where(o * 4 + i < n)
                writes(A[v])
                A[v] = v * v
""",
        a,
    )
    np.testing.assert_array_equal(a, np.arange(10) ** 2)


def test_vectors_masks_and_ramps() -> None:
    a, b = np.arange(10).astype("f4"), np.zeros(10, "f4")
    run(
        """
def f(A: f32[n], B: f32[n]):
    for o in range((n + 3) // 4):
        lanes = let(ramp(o * 4, 1, 4))
        mask = let(lanes < broadcast(n, 4))
        store(B[lanes], load(A[lanes], mask) * broadcast(2.0, 4) + f32(lanes), mask)
""",
        a,
        b,
    )
    np.testing.assert_array_equal(b, a * 3)


def test_a_choice_between_lanes_reads_only_what_it_takes() -> None:
    a, b = np.arange(6).astype("f4"), np.zeros(8, "f4")
    run(
        """
def f(A: f32[6], B: f32[8]):
    lanes = let(ramp(0, 1, 8))
    B[lanes] = A[lanes] if lanes < broadcast(6, 8) else broadcast(-1.0, 8)
    B[ramp(6, 1, 2)] = f32(ramp(0, 1, 2) < broadcast(0, 2) and A[ramp(9, 1, 2)] > broadcast(0.0, 2))
""",
        a,
        b,
    )
    np.testing.assert_array_equal(b, [0, 1, 2, 3, 4, 5, 0, 0])


def test_conditions_are_lazy() -> None:
    a = np.array([3, 1, -1, 5], "i8")
    run(
        """
def f(A: i64[n], out: i64[1]):
    out[0] = 0
    while out[0] < n and A[out[0]] >= 0:
        out[0] = out[0] + 1
    if out[0] == 2 or A[99] == 0:
        out[0] = A[99] if out[0] == 3 else out[0] * 10
""",
        a,
        out := np.zeros(1, "i8"),
    )
    assert out[0] == 20


def test_local_memory_starts_as_rubbish() -> None:
    run(
        "def f(A: f32[1]):\n    T = alloc(f32[2])\n    T[0] = 1.0\n    A[0] = T[1]\n",
        a := np.zeros(1, "f4"),
    )
    assert np.isnan(a[0])


@pytest.mark.parametrize(
    ("expr", "a", "b", "expected"),
    [
        ("a + b", 2**31 - 1, 1, -(2**31)),
        ("a - b", -(2**31), 1, 2**31 - 1),
        ("a * b", 2**20, 2**20, 0),
        ("-a", -(2**31), 0, -(2**31)),
        ("a // b", -7, 2, -4),
        ("a % b", -7, 2, 1),
        ("truncdiv(a, b)", -7, 2, -3),
        ("truncmod(a, b)", -7, 2, -1),
        ("a // b", 7, 0, 0),
        ("a % b", 7, 0, 0),
        ("truncdiv(a, b)", 7, 0, 0),
        ("truncmod(a, b)", 7, 0, 0),
        ("a // b", -(2**31), -1, -(2**31)),
        ("a & b", 12, 10, 8),
        ("a | b", 12, 10, 14),
        ("a ^ b", 12, 10, 6),
        ("~a", 12, 0, -13),
        ("a << b", 3, 2, 12),
        ("a >> b", -8, 1, -4),
        ("min(a, b)", -8, 1, -8),
        ("i32(i8(a))", 200, 0, -56),
        ("i32(u8(a))", -1, 0, 255),
        ("i32(f32(a) / 0.0)", 1, 0, 2**31 - 1),
        ("i32(f32(a) / 0.0)", 0, 0, 0),
        ("i32(f32(a) * 0.75)", -3, 0, -2),
        ("i32(a != 0)", 5, 0, 1),
        ("popcount(a)", -1, 0, 32),
        ("i32(1) if a < b else i32(2)", 1, 2, 1),
        ("i32(u64(a) > u64(b))", -1, 1, 1),
        ("i32(i64(a) * i64(b) >> 32)", 2**31 - 1, 2**31 - 1, (2**31 - 1) ** 2 >> 32),
    ],
)
def test_integers_behave_as_stated(expr: str, a: int, b: int, expected: int) -> None:
    out = np.zeros(1, "i4")
    run(f"def f(A: i32[1], a: i32, b: i32):\n    A[0] = {expr}\n", out, a, b)
    assert out[0] == expected


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_floats_round_in_their_own_type(dtype: str) -> None:
    kind = {"bf16": ml_dtypes.bfloat16}.get(dtype, dtype.replace("f", "float"))
    a, b = (RNG.standard_normal(20).astype(kind) for _ in range(2))
    out = np.zeros(20, kind)
    run(
        f"""
def f(A: {dtype}[n], B: {dtype}[n], C: {dtype}[n]):
    for i in range(n):
        C[i] = max((A[i] + B[i]) * A[i] - B[i] / A[i], {dtype}(0.1))
""",
        a,
        b,
        out,
    )
    expected = np.maximum((a + b) * a - b / a, np.array(0.1, kind))
    np.testing.assert_array_equal(out, expected)


def test_nan_is_handed_on() -> None:
    out = np.zeros(4, "f4")
    run(
        """
def f(A: f32[4], x: f32):
    A[0] = min(x, 1.0)
    A[1] = max(1.0, x)
    A[2] = f32(x == x)
    A[3] = f32(x != x)
""",
        out,
        np.nan,
    )
    np.testing.assert_array_equal(out, [np.nan, np.nan, 0, 1])


def test_intrinsics_follow_numpy() -> None:
    a, out = RNG.standard_normal(16).astype("f4"), np.zeros(16, "f4")
    run(
        "def f(A: f32[n], B: f32[n]):\n    for i in range(n):\n        B[i] = tanh(exp(A[i]))\n",
        a,
        out,
    )
    np.testing.assert_allclose(out, np.tanh(np.exp(a)), rtol=1e-6)


def test_small_types_are_stored_and_converted() -> None:
    q, out = np.array([1.5, -2.0], ml_dtypes.float8_e4m3fn), np.zeros(2, "f4")
    w = np.array([-8, 7], ml_dtypes.int4)
    run(
        """
def f(Q: f8e4m3fn[2], W: i4[2], B: f32[2]):
    for i in range(2):
        B[i] = f32(Q[i]) + f32(W[i])
        Q[i] = f8e4m3fn(B[i])
        W[i] = i4(i + 9)
""",
        q,
        w,
        out,
    )
    np.testing.assert_array_equal(out, [-6.5, 5])
    np.testing.assert_array_equal(q.astype("f4"), [-6.5, 5])
    np.testing.assert_array_equal(w.astype("i8"), [-7, -6])


def test_deep_expressions() -> None:
    x = Var("x")
    deep: Expr = x
    for _ in range(3000):
        deep = deep + x
    buffer = Buffer("A", "i64", (1,))
    interpret(
        Function("f", (buffer, x), Store(buffer, (const(0),), deep)), a := np.zeros(1, "i8"), 2
    )
    assert a[0] == 6002


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("A[n] = 1.0", r"access to A\[4\]: it lies outside the shape \[4\]"),
        ("A[0] = A[-1]", r"access to A\[-1\]"),
        ("A[ramp(2, 1, 4)] = broadcast(1.0, 4)", r"access to A\[4\]"),
        ("for i in parallel(5):\n        A[i] = 1.0", r"access to A\[4\]"),
        ('assert n < 3, ("n is {}", n)', "n is 4"),
        ('assert n < 3, "too {} long"', "too {} long"),
        ('for i in range(5):\n        with block("b", v=spatial(4, i)):\n            pass',
         "v is 4, its extent 4"),
        ("A[0] = f32(address_of(A[0]))", "cannot evaluate address_of"),
    ],
)  # fmt: skip
def test_faults_at_run_time(body: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(f"def f(A: f32[n]):\n    {body}\n", np.zeros(4, "f4"))


def test_faults_show_the_statement() -> None:
    with pytest.raises(UserError) as caught:
        run("def f(A: f32[n]):\n    A[0] = 1.0\n    A[n] = 2.0\n", np.zeros(4, "f4"))
    assert "    A[n] = 2.0\n    ^^^^^^^^^^" in caught.value.listing


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((np.zeros((2, 3), "f4"),), {}, "f was not given B"),
        ((np.zeros((2, 3), "f4"), np.zeros(5, "f4")), {}, r"its shape is \[5\], not \[6\]"),
        ((np.zeros((2, 3), "f8"), np.zeros(6, "f4")), {}, "it is float64 of 2 dimensions"),
        ((np.zeros((2, 3), "f4"), 3), {}, "f takes a NumPy array for B"),
        ((), {"A": np.zeros((2, 3), "f4"), "Z": 1}, "f has no parameter Z"),
        ((1, 2, 3), {}, "f takes 2 arguments, not 3"),
    ],
)
def test_arguments_are_checked(args: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run("def f(A: f32[m, n], B: f32[m * n]):\n    B[0] = A[0, 0]\n", *args, **named)


def test_dimensions_that_no_shape_tells_are_named() -> None:
    text = "def f(A: f32[n * 2]):\n    A[n] = 1.0\n"
    with pytest.raises(UserError, match="f does not know n"):
        run(text, np.zeros(4, "f4"))
    run(text, a := np.zeros(4, "f4"), n=2)
    assert a[2] == 1
