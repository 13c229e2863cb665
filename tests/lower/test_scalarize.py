"""Vectors element by element: the same answers, and no vector left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Function, all_exprs, declare, parse_function
from tilewright.lower.scalarize import scalarize
from tilewright.support.errors import UserError

Keeps = Callable[..., Function]


def whole(*shape: int, dtype: str = "f4") -> Any:
    return np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype(dtype)


def test_lanes_become_a_loop(becomes: Any) -> None:
    before = """
    def f(A: f32[32], B: f32[8], c: f32):
        for i in range(4):
            A[ramp(i * 8, 1, 8)] = B[ramp(0, 1, 8)] + broadcast(c, 8)
    """
    after = """
    def f(A: f32[32], B: f32[8], c: f32):
        for i in range(4):
            for k in range(8):
                A[i * 8 + k] = B[k] + c
    """
    becomes(before, scalarize, after)


def test_loops_of_lanes_run_one_after_the_other(becomes: Any) -> None:
    before = """
    def f(A: f32[8, 4]):
        for i in parallel(8):
            for j in vectorized(4):
                A[i * 4 + j] = 1.0
    """.replace("8, 4", "32")
    becomes(before, scalarize, before.replace("vectorized", "range"))


CASES = {
    "reversed in place": "A[ramp(0, 1, 8)] = A[ramp(7, -1, 8)]",
    "masked": "store(A[ramp(0, 1, 8)], B[ramp(0, 1, 8)], ramp(0, 1, 8) < broadcast(3, 8))",
    "a mask that the store changes": (
        "store(A[ramp(0, 1, 7)], A[ramp(1, 1, 7)], A[ramp(1, 1, 7)] > B[ramp(0, 1, 7)])"
    ),
    "zip": "A[ramp(0, 1, 16)] = zip(B[ramp(0, 1, 8)], B[ramp(8, 1, 8)])",
    "zip low": "A[ramp(0, 1, 8)] = zip_low(B[ramp(0, 1, 8)], B[ramp(8, 1, 8)])",
    "zip high": "A[ramp(0, 1, 8)] = zip_high(B[ramp(0, 1, 8)], B[ramp(8, 1, 8)])",
    "unpack": "A[ramp(0, 1, 8)] = unpack_high(B[ramp(0, 1, 8)], B[ramp(8, 1, 8)])",
    "unpack low": "A[ramp(0, 1, 8)] = unpack_low(B[ramp(0, 1, 8)], B[ramp(8, 1, 8)])",
    "join": "A[ramp(0, 1, 16)] = join(B[ramp(8, 1, 8)], A[ramp(0, 1, 8)])",
    "zips of zips": (
        "A[ramp(0, 1, 8)] = zip_low(zip_high(B[ramp(0, 1, 8)], B[ramp(8, 1, 8)]), "
        "zip_low(B[ramp(8, 1, 8)], B[ramp(0, 1, 8)]))"
    ),
    "a lane": "A[3] = lane(B[ramp(0, 1, 8)] * B[ramp(8, 1, 8)], 5)",
    "regrouped": (
        "A[ramp(0, 1, 4)] = f32(reinterpret_i32(reinterpret_i8(B[ramp(2, 1, 4)])) >> "
        "broadcast(i32(16), 4))"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_answers(name: str, keeps_meaning: Keeps) -> None:
    text = f"def f(A: f32[16], B: f32[16]):\n    {CASES[name]}\n"
    made = keeps_meaning(text, scalarize, whole(16), whole(16) + np.float32(1))
    assert not any(e.dtype.is_vector for e in all_exprs(made.body))


def test_named_vectors_keep_what_memory_held(keeps_meaning: Keeps) -> None:
    text = """
    def f(A: f32[16], B: f32[16]):
        x = let(A[ramp(0, 1, 8)])
        A[ramp(0, 1, 8)] = x + broadcast(1.0, 8)
        B[ramp(4, 1, 8)] = x
    """
    keeps_meaning(text, scalarize, whole(16), whole(16))


def test_instructions_on_vectors_are_refused() -> None:
    text = """
def f(A: f32[4], B: f32[4]):
    A[ramp(0, 1, 4)] = llvm.x86.sse.rcp.ps(B[ramp(0, 1, 4)])
"""
    declare("llvm.x86.sse.rcp.ps", 1, "any", lambda types: types[0])
    with pytest.raises(UserError, match=r"sse\.rcp\.ps element by element"):
        scalarize(parse_function(text))
