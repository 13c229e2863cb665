"""Statements, compiled: the same effect as `ir.interpret` has."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir import parse_function
from tilewright.support.errors import UserError

Agrees = Callable[..., tw.Module]


def whole(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(-9, 9, shape).astype(dtype)


# ---- vectors and memory --------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [2, 3, 4, 7, 16])
def test_contiguous_strided_reversed_and_broadcast(lanes: int, agrees: Agrees) -> None:
    text = f"""
def f(A: f32[{4 * lanes}], B: f32[{4 * lanes}], C: f32[{4 * lanes}], D: f32[{4 * lanes}]):
    for i in range(4):
        for j in vectorized({lanes}):
            B[i * {lanes} + j] = A[j * 4 + i]
            C[j * 4 + i] = A[i * {lanes} + j] * 2.0
            D[i * {lanes} + {lanes - 1} - j] = A[i] + A[i * {lanes} + j]
"""
    agrees(text, *(whole(4 * lanes) for _ in range(4)))


def test_gather_and_scatter(agrees: Agrees) -> None:
    text = """
def f(A: f32[n], I: i64[n], J: i32[n], B: f32[n], C: f32[n]):
    for i in range(n // 8):
        for j in vectorized(8):
            B[i * 8 + j] = A[I[i * 8 + j]]
            C[J[i * 8 + j]] = A[i * 8 + j]
"""
    order = np.random.default_rng(0).permutation(64)
    agrees(text, whole(64), order, order[::-1].astype(np.int32).copy(), whole(64), whole(64))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 30])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bool", "bf16", "f8e5m2", "i4"])
def test_masked_access(n: int, dtype: str, agrees: Agrees) -> None:
    """The last vector is partly outside: neither read nor written there."""
    text = f"""
def f(A: {dtype}[n], B: {dtype}[n]):
    for i in range((n + 7) // 8):
        for j in vectorized(8):
            if i * 8 + j < n:
                B[i * 8 + j] = A[i * 8 + j]
"""
    numpy = tw.DType.of(dtype).numpy
    agrees(text, (np.arange(n) % 3).astype(numpy), np.zeros(n, numpy))


def test_masks_written_out(agrees: Agrees) -> None:
    text = """
def f(A: f32[16], M: bool[16], B: f32[16]):
    x = let(load(A[ramp(0, 1, 16)], M[ramp(0, 1, 16)]))
    store(B[ramp(0, 1, 16)], x, ramp(0, 1, 16) < broadcast(11, 16))
    store(B[ramp(1, 2, 4)], load(A[ramp(0, 3, 4)], M[ramp(0, 4, 4)]), M[ramp(3, 1, 4)])
    store(B[15], load(A[3], M[4]), M[5])
"""
    mask = np.random.default_rng(0).random(16) < 0.5
    for given in (mask, ~mask):
        agrees(text, whole(16), given, np.zeros(16, np.float32))


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kind", ["range", "vectorized", "unrolled"])
def test_padding_reads_nothing_outside(kind: str, checked: bool, agrees: Agrees) -> None:
    text = f"""
def f(A: f32[10], B: f32[16], C: f32[16]):
    for i in {kind}(16):
        B[i] = A[i - 3] if i >= 3 and i < 13 else -1.0
        C[i] = 1.0 if i < 10 and A[i] > 0.0 else (A[15 - i] if not i < 6 else 2.0)
"""
    agrees(text, whole(10), whole(16), whole(16), checked=checked)


def test_padding_of_two_dimensions(agrees: Agrees) -> None:
    text = """
def f(A: f32[h, w], B: f32[h + 2, w + 2]):
    for y in range(h + 2):
        for x in range(w + 2):
            B[y, x] = A[y - 1, x - 1] if y >= 1 and y < h + 1 and x >= 1 and x < w + 1 else 0.0
"""
    agrees(text, whole(5, 3), whole(7, 5), checked=True)


# ---- asserts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "around"), [("f32", "0.0"), ("f32", "-0.0"), ("i8", "0")])
def test_padding_by_whole_vectors(dtype: str, around: str, agrees: Agrees) -> None:
    """A vector lies in the image or beside it: what is beside it is never touched."""
    text = f"""
def f(A: {dtype}[5, 8], B: {dtype}[9, 8]):
    for i in range(9):
        for j in vectorized(8):
            B[i, j] = A[i - 2, j] if i >= 2 and i < 7 else {dtype}({around})
"""
    kind = {"f32": "float32", "i8": "int8"}[dtype]
    module = agrees(text, whole(5, 8, dtype=kind), whole(9, 8, dtype=kind))
    assert "masked.load" not in module.code


@pytest.mark.parametrize("kind", ["range", "vectorized", "parallel", "unrolled"])
def test_an_index_out_of_bounds_is_reported(kind: str) -> None:
    text = f"""
def gather(A: f32[n], I: i64[8], B: f32[8]):
    for i in {kind}(8):
        B[i] = A[I[i]]
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    a, b = whole(5), whole(8)
    indices = np.array([0, 1, 2, 3, 4, 4, 4, 4])
    module(a, indices, b)
    np.testing.assert_array_equal(b, a[indices])
    for wrong in (5, -1):
        indices[6] = wrong
        with pytest.raises(UserError) as caught:
            module(a, indices, b)
        message = str(caught.value)
        assert f"index {wrong} is out of bounds for dimension 0 of A, whose extent is 5" in message
        assert "gather stopped" in message
    indices[6] = 0
    module(a, indices, b)
    np.testing.assert_array_equal(b, a[indices])


def test_a_message_with_values_of_all_sizes() -> None:
    text = """
def f(A: i8[4], B: i16[4], U: u8[4]):
    for i in range(4):
        assert A[i] < i8(3), ("{} {} {} at {}", A[i], B[i], U[i], i)
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    a = np.array([-4, 1, 2, 3], np.int8)
    with pytest.raises(UserError, match=r"f stopped: 3 -300 200 at 3"):
        module(a, np.full(4, -300, np.int16), np.full(4, 200, np.uint8))
    a[3] = 0
    module(a, np.full(4, -300, np.int16), np.full(4, 200, np.uint8))


def test_accesses_after_an_assert_do_not_happen() -> None:
    text = """
def f(A: f32[4], n: i64):
    for i in range(n):
        A[i] = 1.0
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    a = np.zeros(8, np.float32)
    with pytest.raises(UserError, match="index 4 is out of bounds for dimension 0 of A"):
        module(a[:4], 7)
    np.testing.assert_array_equal(a, [1, 1, 1, 1, 0, 0, 0, 0])


# ---- control flow --------------------------------------------------------------------------------


def test_while(agrees: Agrees) -> None:
    text = """
def collatz(A: i64[n], B: i64[n], S: i64[1]):
    for i in range(n):
        B[i] = 0
        while A[i] > 1:
            A[i] = A[i] // 2 if A[i] % 2 == 0 else A[i] * 3 + 1
            B[i] = B[i] + 1
    S[0] = 0
    while S[0] < n and A[S[0]] == 1:
        S[0] = S[0] + 1
"""
    agrees(text, np.arange(1, 30), np.zeros(29, np.int64), np.zeros(1, np.int64))


def test_branches_that_differ_between_lanes(agrees: Agrees) -> None:
    text = """
def f(A: f32[32], B: f32[32], C: f32[32]):
    for i in vectorized(32):
        if A[i] > 0.0:
            A[i] = 0.0 - A[i]
            B[i] = A[i]
            if i % 3 == 0:
                C[i] = 7.0
        else:
            A[i] = 5.0
            C[i] = A[i]
"""
    agrees(text, whole(32), whole(32), whole(32))


def test_branches_that_all_lanes_share(agrees: Agrees) -> None:
    text = """
def f(A: f32[4, 8], B: f32[4, 8], k: i32):
    for i in range(4):
        for j in vectorized(8):
            if i % 2 == 0:
                B[i, j] = A[i, j]
            else:
                if k > 3:
                    B[i, j] = 1.0
                else:
                    B[i, j] = A[i, 7 - j]
"""
    for k in (3, 4):
        agrees(text, whole(4, 8), whole(4, 8), k)


def test_lets_and_memory_that_changes(agrees: Agrees) -> None:
    """A let keeps the value that memory had."""
    text = """
def f(A: f32[16], B: f32[16]):
    for i in vectorized(16):
        x = let(A[i])
        A[i] = x + 1.0
        y = let(A[i] * x)
        B[i] = x - y
"""
    agrees(text, whole(16), whole(16))


def test_loops_of_all_kinds_inside_each_other(agrees: Agrees) -> None:
    text = """
def f(A: f32[n, 6, 4], B: f32[n, 6, 4], s: f32):
    for b in parallel(n):
        for i in unrolled(6):
            for j in vectorized(4):
                B[b, i, j] = 0.0
                for k in range(b + 1):
                    for u in unrolled(2):
                        B[b, i, j] = B[b, i, j] + A[k, i, j] * s + f32(u)
"""
    agrees(text, whole(5, 6, 4), whole(5, 6, 4), 2.0)


@pytest.mark.parametrize("kind", ["range", "parallel", "vectorized", "unrolled"])
def test_loops_over_nothing(kind: str, agrees: Agrees) -> None:
    constant = f"""
def f(A: f32[4], n: i64):
    for i in {kind}(0):
        A[i] = 1.0
    for i in {kind}(n):
        A[i] = 2.0
"""
    for n in (0, -3):
        agrees(constant, whole(4), n)


def test_arrays_without_elements_and_without_dimensions(agrees: Agrees) -> None:
    text = """
def f(A: f32[n, 3], S: f32[()]):
    S[()] = 4.0
    for i in parallel(n):
        for j in vectorized(3):
            A[i, j] = S[()]
"""
    agrees(text, np.zeros((0, 3), np.float32), np.zeros((), np.float32))
    agrees(text, np.zeros((2, 3), np.float32), np.zeros((), np.float32))


# ---- parallel loops and memory of their own ------------------------------------------------------


def test_parallel_loops_see_what_is_around_them(agrees: Agrees) -> None:
    text = """
def f(A: f32[n, m], B: f32[n, m], s: f32, flag: bool, h: f16):
    T = alloc(f32[m], scope="local")
    G = alloc(f32[n, m])
    x = let(f32(n * m) * s)
    for j in range(m):
        T[j] = x + f32(j)
    for i in parallel(n):
        L = alloc(f32[8], scope="local")
        for j in range(m):
            L[j % 8] = A[i, j] * f32(h)
            G[i, j] = L[j % 8] + T[j]
    for i in parallel(n):
        for j in range(m):
            B[i, j] = G[n - 1 - i, j] if flag else 0.0
"""
    for flag in (True, False):
        agrees(text, whole(9, 12), whole(9, 12), 2.0, flag, 0.5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 7, 32])
def test_loops_that_go_back_and_forth(n: int, threads: int) -> None:
    """Iterations write when they run: every other time, the last one of a part is the first."""
    parts = min(n, threads)
    text = f"""
def f(order: i64[n], next: i64[{parts}, 64]):
    for t in range(3):
        for i in parallel(n, note={{"back_and_forth": 1}}):
            order[i] = order[i] * 100 + next[((i + 1) * {parts} - 1) // n, 0]
            next[((i + 1) * {parts} - 1) // n, 0] = next[((i + 1) * {parts} - 1) // n, 0] + 1
"""
    order, following = np.zeros(n, np.int64), np.zeros((parts, 64), np.int64)
    tw.build(parse_function(text), threads=threads)(order, following)
    bounds = [k * n // parts for k in range(parts + 1)]
    for begin, end in itertools.pairwise(bounds):
        size = end - begin
        forth, back = np.arange(size), np.arange(size)[::-1]
        times = forth * 10000 + (size + back) * 100 + (2 * size + forth)
        assert order[begin:end].tolist() == times.tolist()


def test_large_memory_inside_parallel_loops(agrees: Agrees) -> None:
    """More than a stack holds, of constant and of symbolic size, and more than one turn each."""
    text = """
def f(A: f32[n], B: f32[n]):
    for i in parallel(n):
        L = alloc(f32[600000])
        M = alloc(f32[n, 3])
        L[599999 - i] = A[i]
        for j in range(n):
            M[j, i % 3] = A[j]
        B[i] = L[599999 - i] + M[n - 1 - i, i % 3]
"""
    agrees(text, whole(50), whole(50), threads=2)


def test_memory_with_gaps_and_offsets(agrees: Agrees) -> None:
    text = """
def f(A: f32[4, 5], B: f32[5, 4]):
    T = alloc(f32[4, 5, strides(9, 1), offset(3)])
    U = alloc(f32[4, 5, strides(7, 1)], scope="local")
    for i in range(4):
        for j in vectorized(5):
            T[i, j] = A[i, j]
            U[i, j] = A[i, j] + 1.0
    for i in range(5):
        for j in vectorized(4):
            B[i, j] = T[j, i] * U[j, i]
"""
    agrees(text, whole(4, 5), whole(5, 4))


def test_strided_parameters() -> None:
    text = """
def f(A: f32[n, 4, strides(6, 1)], B: f32[n, 4]):
    for i in range(n):
        for j in vectorized(4):
            B[i, j] = A[i, j]
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    a, b = whole(3, 6)[:, :4], whole(3, 4)
    module(a, b)
    np.testing.assert_array_equal(a, b)


def test_dimensions_that_depend_on_each_other(agrees: Agrees) -> None:
    text = """
def f(A: f32[4 * n], B: f32[n, 4], C: f32[n + m], D: f32[m]):
    for i in range(n):
        for j in vectorized(4):
            B[i, j] = A[i * 4 + j]
    for i in range(n + m):
        C[i] = B[i, 0] if i < n else D[i - n]
"""
    agrees(text, whole(12), whole(3, 4), whole(8), whole(5))


def test_buffers_of_truth_values(agrees: Agrees) -> None:
    text = """
def f(A: bool[32], B: bool[32], C: i32[32], s: bool):
    for i in vectorized(32):
        B[i] = not A[i] or (A[31 - i] and s)
        C[i] = i32(A[i]) + i32(B[i])
"""
    values = np.random.default_rng(0).random(32) < 0.5
    agrees(text, values, ~values, np.zeros(32, np.int32), True)


def test_many_calls_at_once_from_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    text = """
def f(A: f32[n], B: f32[n]):
    T = alloc(f32[n])
    for i in parallel(n):
        T[i] = A[i] + 1.0
    for i in parallel(n):
        B[i] = T[n - 1 - i]
"""
    module = tw.build(tw.Schedule(parse_function(text)))

    def one(k: int) -> bool:
        a, b = np.full(1000 + k, k, np.float32), np.zeros(1000 + k, np.float32)
        module(a, b)
        return bool((b == k + 1).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(64)))


# ---- rounding ------------------------------------------------------------------------------------


def test_products_are_fused_with_the_sums_that_add_them_up_and_no_others() -> None:
    text = """
def f(A: f32[64], B: f32[64], C: f32[64], S: f32[64]):
    for i in vectorized(64):
        C[i] = A[i] * B[i] + C[63 - i]
    for k in range(64):
        for i in vectorized(64):
            S[i] = S[i] + A[k] * B[i]
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    rng = np.random.default_rng(0)
    a, b, c, s = (rng.standard_normal(64).astype("f4") for _ in range(4))
    want = a * b + c[::-1]
    module(a, b, c, s)
    np.testing.assert_array_equal(c, want)
    if tw.Target.of("llvm").has_fma:
        assert any(i in module.asm for i in ("vfmadd", "fmla", "fmadd"))


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32"])
@pytest.mark.parametrize("inside", range(5))
def test_masked_stores_write_no_more_than_their_lanes(dtype: str, inside: int) -> None:
    """Also of a single lane, and of numbers that become narrower on their way to memory."""
    text = f"""
def f(A: i64[4], B: {dtype}[9]):
    store(B[ramp(0, 1, 4)], {dtype}(A[ramp(0, 1, 4)]), ramp(0, 1, 4) < broadcast({inside}, 4))
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    whole = np.arange(1, 5)
    memory = np.full(9, -1, module.signature.params[1].dtype.numpy)
    module(whole, memory)
    np.testing.assert_array_equal(memory, [*whole[:inside], *[-1] * (9 - inside)])
