"""Loops become vectors."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir import interpret, parse_function
from tilewright.lower.vectorize import vectorize
from tilewright.support.errors import UserError


def test_neighbours_broadcasts_and_strides(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[4, 8], B: f32[8, 4], c: f32):
            for i in range(4):
                for j in vectorized(8):
                    A[i, j] = B[j, i] * c + A[i, 0]
        """,
        vectorize,
        """
        def f(A: f32[4, 8], B: f32[8, 4], c: f32):
            for i in range(4):
                A[i, ramp(0, 1, 8)] = B[ramp(0, 1, 8), i] * broadcast(c, 8) + broadcast(A[i, 0], 8)
        """,
    )


def test_lengths_that_are_no_power_of_two(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[7], B: f32[7]):
            for j in vectorized(7):
                A[j] = B[j]
        """,
        vectorize,
        """
        def f(A: f32[7], B: f32[7]):
            A[ramp(0, 1, 4)] = B[ramp(0, 1, 4)]
            A[ramp(4, 1, 2)] = B[ramp(4, 1, 2)]
            A[6] = B[6]
        """,
    )


def test_conditions_become_masks(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[8], n: i64):
            for j in vectorized(8):
                if j < n:
                    A[j] = 1.0
                else:
                    A[j] = 2.0
        """,
        vectorize,
        """
        def f(A: f32[8], n: i64):
            store(A[ramp(0, 1, 8)], broadcast(1.0, 8), ramp(0, 1, 8) < broadcast(n, 8))
            store(A[ramp(0, 1, 8)], broadcast(2.0, 8), ramp(0, 1, 8) >= broadcast(n, 8))
        """,
    )


def test_a_condition_on_memory_is_decided_once(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[8], B: f32[8]):
        for j in vectorized(8):
            if A[j] > 0.0:
                A[j] = -1.0
                B[j] = 1.0
            else:
                A[j] = 5.0
    """
    a = np.array([1, -1, 2, -2, 0, 3, -3, 4], np.float32)
    keeps_meaning(text, vectorize, a, np.zeros(8, np.float32))


@pytest.mark.parametrize(
    "body",
    [
        "S[0] = S[0] + A[j]",
        "S[0] = A[j] if A[j] > S[0] else S[0]",
        "while A[j] < 4.0:\n                A[j] = A[j] + 1.0",
        "for k in range(j):\n                A[j] = A[j] + 1.0",
    ],
)
def test_what_has_no_vector_form_runs_lane_by_lane(body: str, keeps_meaning: Any) -> None:
    text = f"""
    def f(A: f32[8], S: f32[1]):
        for j in vectorized(8):
            {body}
    """
    result = keeps_meaning(text, vectorize, np.arange(8, dtype=np.float32), np.zeros(1, np.float32))
    assert "ramp" not in repr(result)


def test_asserts_of_lanes(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[8], I: i64[8]):
        for j in vectorized(8):
            assert I[j] < 8, ("{} at {}", I[j], j)
            A[j] = f32(I[j])
    """
    result = keeps_meaning(text, vectorize, np.zeros(8, np.float32), np.arange(8))
    assert "ramp" in repr(result)
    assert repr(result).count("assert") == 1, "not one for each lane"
    numbers = np.array([0, 1, 2, 3, 4, 9, 9, 7])
    given = parse_function(textwrap.dedent(text))
    for function in (given, result):
        with pytest.raises(UserError, match="9 at 5"):
            interpret(function, np.zeros(8, np.float32), numbers)
    with pytest.raises(UserError, match="9 at 5"):
        tw.build(tw.Schedule(given))(np.zeros(8, np.float32), numbers)


def test_lets_and_loops_within(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[8, 4], B: f32[8], S: f32[1]):
        for j in vectorized(8):
            x = let(B[j] + 1.0)
            y = let(S[0])
            for k in range(4):
                A[j, k] = x * A[j, k] + y if k > 1 else x
    """
    a, b = np.ones((8, 4), np.float32), np.arange(8, dtype=np.float32)
    keeps_meaning(text, vectorize, a, b, np.full(1, 3, np.float32))
