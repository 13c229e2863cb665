"""Loops end where their guards begin to fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.lower.tighten import tighten_loops

TILES = """
def f(A: f32[n], B: f32[n]):
    for k in range((n + 63) // 64):
        for i in range(64):
            for j in range(2):
                if k * 64 + i < n:
                    B[k * 64 + i] = A[k * 64 + i] + f32(j)
"""


def test_a_guard_bounds_its_loop(becomes: Any) -> None:
    becomes(
        TILES,
        tighten_loops,
        """
        def f(A: f32[n], B: f32[n]):
            for k in range((n + 63) // 64):
                for i in range(min(n - k * 64, 64)):
                    for j in range(2):
                        B[k * 64 + i] = A[k * 64 + i] + f32(j)
        """,
    )


def test_a_guard_that_all_share_bounds_the_loop_around(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[n], B: f32[n]):
            for k in range((n + 63) // 64):
                for i in range(64):
                    T = alloc(f32[1])
                    if k * 64 + i < n:
                        T[0] = A[k * 64 + i]
                    if k * 64 + i < n and i < k:
                        B[k * 64 + i] = T[0]
        """,
        tighten_loops,
        """
        def f(A: f32[n], B: f32[n]):
            for k in range((n + 63) // 64):
                for i in range(min(n - k * 64, 64)):
                    T = alloc(f32[1])
                    T[0] = A[k * 64 + i]
                    if i < k:
                        B[k * 64 + i] = T[0]
        """,
    )


def test_meaning(keeps_meaning: Any) -> None:
    for n in (0, 1, 64, 100):
        a = np.arange(n, dtype=np.float32)
        keeps_meaning(TILES, tighten_loops, a, np.zeros(n, np.float32))


def test_vectorized_loops_keep_their_length_and_memory_its_guards(becomes: Any) -> None:
    text = """
    def f(A: f32[n], M: i64[n]):
        for i in range((n + 7) // 8):
            for j in vectorized(8):
                if i * 8 + j < n:
                    A[i * 8 + j] = 1.0
        for i in range(n):
            if M[i] > 0:
                A[i] = 2.0
        for i in range(n):
            if i * 2 < n:
                A[i] = 3.0
            else:
                A[i] = 4.0
    """
    becomes(text, tighten_loops, text)


def test_nothing_stays_nothing(becomes: Any) -> None:
    text = """
    def f(A: f32[n]):
        pass
    """
    becomes(text, tighten_loops, text)
