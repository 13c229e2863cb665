"""Blocks dissolve into statements."""

from __future__ import annotations

from typing import Any

from tilewright.lower.blocks import lower_blocks


def test_variables_and_predicates(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[10], B: f32[10]):
            for i in range(3):
                for j in vectorized(4):
                    with block("B", v=spatial(10, i * 4 + j)):
                        where(i * 4 + j < 10)
                        reads(A[9 - v])
                        writes(B[v])
                        B[v] = A[9 - v] + f32(v)
        """,
        lower_blocks,
        """
        def f(A: f32[10], B: f32[10]):
            for i in range(3):
                for j in vectorized(4):
                    if i * 4 + j < 10:
                        B[i * 4 + j] = A[9 - (i * 4 + j)] + f32(i * 4 + j)
        """,
    )


def test_blocks_inside_blocks(becomes: Any) -> None:
    becomes(
        """
        def f(B: f32[8]):
            for i in range(2):
                with block("outer", u=spatial(2, i)):
                    writes(B[u * 4:u * 4 + 4])
                    for j in range(4):
                        with block("inner", v=spatial(8, u * 4 + j)):
                            writes(B[v])
                            B[v] = 0.0
        """,
        lower_blocks,
        """
        def f(B: f32[8]):
            for i in range(2):
                for j in range(4):
                    B[i * 4 + j] = 0.0
        """,
    )
