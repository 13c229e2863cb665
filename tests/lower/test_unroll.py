"""Unrolled loops are written out."""

from __future__ import annotations

from typing import Any

from tilewright.lower.unroll import unroll


def test_copies_have_variables_of_their_own(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[2, n]):
            for i in unrolled(2):
                for j in range(n):
                    x = let(f32(i) + 1.0)
                    A[i, j] = x
        """,
        unroll,
        """
        def f(A: f32[2, n]):
            for j in range(n):
                x = let(cast(f32, 0) + 1.0)
                A[0, j] = x
            for j in range(n):
                x = let(cast(f32, 1) + 1.0)
                A[1, j] = x
        """,
    )


def test_unknown_and_huge_extents_stay_loops(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[n], B: f32[100000]):
            for i in unrolled(n):
                A[i] = 0.0
            for i in unrolled(100000):
                B[i] = 0.0
        """,
        unroll,
        """
        def f(A: f32[n], B: f32[100000]):
            for i in range(n):
                A[i] = 0.0
            for i in range(100000):
                B[i] = 0.0
        """,
    )
