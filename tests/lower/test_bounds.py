"""Accesses are proved, masked or asserted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import Assert, Function, interpret, parse_function, walk
from tilewright.lower.bounds import check_bounds
from tilewright.support.errors import UserError


def checked(function: Function) -> Function:
    return check_bounds(function, checked=True)


def asserts(function: Function) -> list[Assert]:
    return [s for s in walk(function.body) if isinstance(s, Assert)]


def test_what_is_proved_stays(becomes: Any) -> None:
    text = """
    def f(A: f32[n, 8], B: f32[n, 8]):
        for i in range(n):
            for j in vectorized(8):
                B[n - 1 - i, j] = A[i, 7 - j]
    """
    becomes(text, check_bounds, text)
    assert len(asserts(checked(parse_function(text.replace("\n    ", "\n"))))) == 8


def test_a_side_of_a_select_is_masked(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[10], B: f32[16]):
            for i in range(16):
                B[i] = A[i - 3] if i >= 3 and i < 13 else -1.0
        """,
        check_bounds,
        """
        def f(A: f32[10], B: f32[16]):
            for i in range(16):
                B[i] = load(A[i - 3], i >= 3 and i < 13) if i >= 3 and i < 13 else -1.0
        """,
    )


def test_what_is_unknown_is_asserted(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[n], I: i32[8], B: f32[8]):
            for i in range(8):
                B[i] = A[I[i]]
        """,
        check_bounds,
        """
        def f(A: f32[n], I: i32[8], B: f32[8]):
            for i in range(8):
                assert 0 <= i64(I[i]), ("index {} is out of bounds for dimension 0 of A, \
whose extent is {}", I[i], n)
                assert i64(I[i]) < n, ("index {} is out of bounds for dimension 0 of A, \
whose extent is {}", I[i], n)
                B[i] = A[I[i]]
        """,
    )


def test_what_is_evaluated_anyway_needs_no_condition(keeps_meaning: Any) -> None:
    """Each place is read from a list and chosen by its own sign, six lists deep."""
    place = "i"
    for k in range(6):
        place = f"I{k}[{place} + 4 if {place} < 0 else {place}]"
    lists = ", ".join(f"I{k}: i32[4]" for k in range(6))
    text = f"""
    def f({lists}, B: i32[4]):
        for i in range(4):
            B[i] = {place}
    """
    rows = np.random.default_rng(0).integers(-4, 4, (7, 4), np.int32)
    safe = keeps_meaning(text, check_bounds, *rows)
    # One assert for each side of each list but the first, whose place is known.
    assert len(asserts(safe)) == 2 * 5


def test_asserts_hold_only_where_the_access_happens(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[5], I: i64[8], B: f32[8]):
        for i in range(8):
            B[i] = A[I[i]] if I[i] >= 0 and I[i] < 5 else 0.0
            if I[i] < 2 and I[i] > -2:
                B[i] = 1.0 if I[i] < 0 or A[I[i]] > 2.0 else 3.0
    """
    indices = np.array([0, 4, -1, 7, 2, 100, 1, 3])
    for run in (check_bounds, checked):
        keeps_meaning(text, run, np.arange(5, dtype=np.float32), indices, np.zeros(8, np.float32))


def test_a_condition_on_memory_that_changes_proves_nothing() -> None:
    text = """
def f(P: i64[1], A: f32[4]):
    if P[0] >= 0 and P[0] < 4:
        P[0] = 9
        A[P[0]] = 1.0
"""
    result = check_bounds(parse_function(text))
    with pytest.raises(UserError, match="index 9 is out of bounds for dimension 0 of A"):
        interpret(result, np.zeros(1, np.int64), np.zeros(4, np.float32))


def test_the_condition_of_a_while_is_checked_every_turn() -> None:
    text = """
def f(A: i64[4], S: i64[1]):
    while A[S[0]] > 0:
        S[0] = S[0] + 1
"""
    result = check_bounds(parse_function(text))
    position = np.zeros(1, np.int64)
    interpret(result, np.array([1, 1, 0, 1]), position)
    assert position[0] == 2
    with pytest.raises(UserError, match="index 4 is out of bounds for dimension 0 of A"):
        interpret(result, np.ones(4, np.int64), np.zeros(1, np.int64))


def test_conditions_on_loads_in_a_guarded_loop_are_known_of_the_same_loads() -> None:
    """All loads of I get the guard as their mask, and no more: what is said of one holds of all."""
    text = """
def f(A: f32[n], I: i64[m], B: f32[m]):
    for i in range((m + 7) // 8):
        for j in vectorized(8):
            if i * 8 + j < m:
                B[i * 8 + j] = A[I[i * 8 + j]] if I[i * 8 + j] >= 0 and I[i * 8 + j] < n else 0.0
"""
    result = check_bounds(parse_function(text))
    assert not asserts(result)
    indices = np.array([0, 4, -1, 7, 2, 100, 1, 3, 5, 2])
    a, b = np.arange(5, dtype=np.float32), np.zeros(10, np.float32)
    interpret(result, a, indices, b)
    np.testing.assert_array_equal(b, [0, 4, 0, 0, 2, 0, 1, 3, 0, 2])


def test_vectors_are_checked_lane_by_lane() -> None:
    text = """
def f(A: f32[10], M: bool[8], B: f32[8]):
    B[ramp(0, 1, 8)] = load(A[ramp(0, 2, 8)], M[ramp(0, 1, 8)])
"""
    result = check_bounds(parse_function(text))
    assert len(asserts(result)) == 3, "lanes 5, 6 and 7 may lie outside"
    a, b = np.arange(10, dtype=np.float32), np.zeros(8, np.float32)
    inside = np.arange(8) < 5
    interpret(result, a, inside, b)
    np.testing.assert_array_equal(b, np.where(inside, 2.0 * np.arange(8), 0.0))
    with pytest.raises(UserError, match="index 12 is out of bounds"):
        interpret(result, a, np.arange(8) == 6, b)
