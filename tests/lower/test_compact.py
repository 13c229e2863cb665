"""Intermediate buffers live as far in, and are as small, as their uses allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import Alloc, parse_function, walk
from tilewright.lower.compact import compact_buffers

PRODUCER = """
def f(A: f32[64, 8], B: f32[64, 8]):
    T = alloc(f32[64, 8])
    for i in range(4):
        for a in range(16):
            for b in range(8):
                T[i * 16 + a, b] = A[i * 16 + a, b]
        for a in range(16):
            for b in range(8):
                B[i * 16 + a, b] = T[i * 16 + a, b] + T[i * 16 + 15 - a, b]
"""


def arrays() -> list[np.ndarray]:
    a = np.arange(512, dtype=np.float32).reshape(64, 8)
    return [a, np.zeros_like(a)]


def test_into_the_loop(becomes: Any) -> None:
    becomes(
        PRODUCER,
        compact_buffers,
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            for i in range(4):
                T = alloc(f32[16, 8])
                for a in range(16):
                    for b in range(8):
                        T[a, b] = A[i * 16 + a, b]
                for a in range(16):
                    for b in range(8):
                        B[i * 16 + a, b] = T[a, b] + T[15 - a, b]
        """,
    )


def test_meaning(keeps_meaning: Any) -> None:
    keeps_meaning(PRODUCER, compact_buffers, *arrays())


FUSED = """
def f(A: f32[64, 8], B: f32[64, 8]):
    T = alloc(f32[8, 8, 8])
    for v in range(64):
        for b in range(4):
            T[v // 8, v % 8, b] = A[v, b]
        for b in range(8):
            B[v, b] = B[v, b] if b >= 4 else T[v // 8, v % 8, b]
"""


def test_into_a_loop_that_several_indices_tell(keeps_meaning: Any) -> None:
    result = keeps_meaning(FUSED, compact_buffers, *arrays())
    (alloc,) = (s for s in walk(result.body) if isinstance(s, Alloc))
    assert alloc.buffers[0].static_size() == 8


def test_indices_that_tell_only_part_of_a_loop(keeps_meaning: Any) -> None:
    text = FUSED.replace("v // 8, v % 8", "v // 16, v % 8")
    result = keeps_meaning(text, compact_buffers, *arrays())
    assert [b.name for s in _leading_allocs(result.body) for b in s.buffers] == ["T"]


@pytest.mark.parametrize(
    "text",
    [
        # Read from the iteration before.
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            T = alloc(f32[8])
            for b in range(8):
                T[b] = 0.0
            for i in range(64):
                for b in range(8):
                    T[b] = T[b] + A[i, b]
                    B[i, b] = T[b]
        """,
        # Written in some iterations only.
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            T = alloc(f32[8])
            for i in range(64):
                if i % 2 == 0:
                    for b in range(8):
                        T[b] = A[i, b]
                for b in range(8):
                    B[i, b] = T[b]
        """,
        # Written under a condition on memory that changes before the same condition is read.
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            T = alloc(f32[8])
            P = alloc(i64[1])
            for b in range(8):
                T[b] = 5.0
            for i in range(64):
                P[0] = i % 2
                if P[0] == 0:
                    for b in range(8):
                        T[b] = A[i, b]
                P[0] = 0
                if P[0] == 0:
                    for b in range(8):
                        B[i, b] = T[b]
        """,
        # Written by a loop that may not run.
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            T = alloc(f32[8])
            P = alloc(i64[1])
            for b in range(8):
                T[b] = 5.0
            for i in range(64):
                P[0] = i % 3
                while P[0] == 0:
                    P[0] = 1
                    for b in range(8):
                        T[b] = A[i, b]
                for b in range(8):
                    B[i, b] = T[b]
        """,
        # Written in part.
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            T = alloc(f32[8])
            for b in range(8):
                T[b] = 5.0
            for i in range(64):
                for b in range(4):
                    T[b * 2] = A[i, b]
                for b in range(8):
                    B[i, b] = T[b]
        """,
    ],
    ids=["carried", "sometimes", "changed condition", "while", "in part"],
)
def test_values_that_outlive_an_iteration_stay_outside(text: str, keeps_meaning: Any) -> None:
    result = keeps_meaning(text, compact_buffers, *arrays())
    outermost = [b.name for s in _leading_allocs(result.body) for b in s.buffers]
    assert "T" in outermost


def _leading_allocs(body: Any) -> list[Alloc]:
    found = []
    while isinstance(body, Alloc):
        found.append(body)
        body = body.body
    return found


def test_each_buffer_where_it_is_used(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[64, 8], B: f32[64, 8]):
        T = alloc(f32[64, 8])
        U = alloc(f32[64])
        for i in range(64):
            for b in range(8):
                T[i, b] = A[i, b] * 2.0
            U[i] = T[i, 0]
        for i in range(64):
            for b in range(8):
                B[i, b] = U[63 - i] + f32(b)
    """
    result = keeps_meaning(text, compact_buffers, *arrays())
    sizes = {b.name: b.static_size() for s in walk(result.body) if isinstance(s, Alloc)
             for b in s.buffers}  # fmt: skip
    assert sizes == {"T": 8, "U": 64}


PARTS = """
def f(A: f32[6, 8], B: f32[6, 8]):
    T = alloc(f32[6, 8])
    for i in range(4):
        for a in range(3):
            T[i % 2 * 3 + a, ramp(0, 1, 4)] = A[i % 2 * 3 + a, ramp(4, 1, 4)]
            T[i % 2 * 3 + a, ramp(4, 1, 4)] = A[i % 2 * 3 + a, ramp(0, 1, 4)]
            for b in range(8):
                B[i % 2 * 3 + a, b] = T[i % 2 * 3 + a, b]
"""


def test_parts_of_a_vector_are_written_one_by_one(keeps_meaning: Any) -> None:
    """Together they are all that is read."""
    a = np.arange(48, dtype=np.float32).reshape(6, 8)
    after = keeps_meaning(PARTS, compact_buffers, a, np.zeros_like(a))
    assert "T = alloc(f32[1, 8])" in str(after)
    apart = parse_function(PARTS.replace("ramp(4, 1, 4)] = A", "ramp(3, 1, 4)] = A"))
    assert "T = alloc(f32[6, 8])" in str(compact_buffers(apart))


def test_one_loop_over_all_elements_writes_them_all(becomes: Any) -> None:
    """In any order of dimensions, as where threads copy a tile together."""
    becomes(
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            T = alloc(f32[8, 64])
            for i in range(4):
                for t in range(128):
                    T[t % 8, i * 16 + t // 8] = A[i * 16 + t // 8, t % 8]
                for a in range(16):
                    for b in range(8):
                        B[i * 16 + a, b] = T[7 - b, i * 16 - a + 15]
        """,
        compact_buffers,
        """
        def f(A: f32[64, 8], B: f32[64, 8]):
            for i in range(4):
                T = alloc(f32[8, 16])
                for t in range(128):
                    T[t % 8, t // 8] = A[i * 16 + t // 8, t % 8]
                for a in range(16):
                    for b in range(8):
                        B[i * 16 + a, b] = T[7 - b, 15 - a]
        """,
    )


def test_one_loop_over_all_elements_may_be_cut_off(becomes: Any) -> None:
    """What iterations past the end would touch takes no memory."""
    becomes(
        """
        def f(A: f32[8, 9, 9], B: f32[8, 9, 9]):
            T = alloc(f32[9, 9])
            for i in range(8):
                for o in range(2):
                    for t in range(64):
                        if o * 64 + t < 81:
                            T[(o * 64 + t) // 9, (o * 64 + t) % 9] = A[i, 0, 0]
                for a in range(9):
                    for b in range(9):
                        B[i, a, b] = T[8 - a, 8 - b]
        """,
        compact_buffers,
        """
        def f(A: f32[8, 9, 9], B: f32[8, 9, 9]):
            for i in range(8):
                T = alloc(f32[9, 9])
                for o in range(2):
                    for t in range(64):
                        if o * 64 + t < 81:
                            T[(o * 64 + t) // 9, (o * 64 + t) % 9] = A[i, 0, 0]
                for a in range(9):
                    for b in range(9):
                        B[i, a, b] = T[8 - a, 8 - b]
        """,
    )


def test_scopes_say_who_has_memory_of_its_own(becomes: Any) -> None:
    """Blocks have shared memory, threads local memory; what is global is the host's to allocate."""
    becomes(
        """
        def f(N: i64[16], B: f32[64]):
            S = alloc(f32[64], scope="shared")
            G = alloc(f32[16])
            L = alloc(f32[16], scope="local")
            for y in thread(4, "blockIdx.y"):
                for x in thread(4, "blockIdx.x"):
                    for t in thread(4, "threadIdx.x"):
                        S[N[t]] = 1.0
                        G[y * 4 + x] = S[N[t]]
                        L[N[x]] = 2.0
                        B[y * 16 + x * 4 + t] = G[y * 4 + x] + L[N[x]]
        """,
        compact_buffers,
        """
        def f(N: i64[16], B: f32[64]):
            G = alloc(f32[16])
            for y in thread(4, "blockIdx.y"):
                for x in thread(4, "blockIdx.x"):
                    S = alloc(f32[64], scope="shared")
                    for t in thread(4, "threadIdx.x"):
                        S[N[t]] = 1.0
                        G[y * 4 + x] = S[N[t]]
                        L = alloc(f32[16], scope="local")
                        L[N[x]] = 2.0
                        B[y * 16 + x * 4 + t] = G[y * 4 + x] + L[N[x]]
        """,
    )
