"""Where the initialisation of a reduction goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.lower.init import place_init

ROWS = """
def f(A: f32[30, n], C: f32[30]):
    for io in range(8):
        for k in range(n):
            for ii in unrolled(4):
                with block("C", vi=spatial(30, io * 4 + ii), vk=reduce(n, k)):
                    where(io * 4 + ii < 30)
                    reads(A[vi, vk])
                    writes(C[vi])
                    with init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A[vi, vk]
"""
FUSED = """
def f(A: f32[7, 5], C: f32[7]):
    for q in range(35):
        with block("C", vi=spatial(7, q // 5), vk=reduce(5, q % 5)):
            reads(A[vi, vk])
            writes(C[vi])
            with init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
"""


def test_before_the_loop_that_reduces(becomes: Any) -> None:
    becomes(
        ROWS,
        place_init,
        """
        def f(A: f32[30, n], C: f32[30]):
            for io in range(8):
                for ii in unrolled(4):
                    if io * 4 + ii < 30:
                        C[io * 4 + ii] = 0.0
                for k in range(n):
                    for ii in unrolled(4):
                        with block("C", vi=spatial(30, io * 4 + ii), vk=reduce(n, k)):
                            where(io * 4 + ii < 30)
                            reads(C[vi], A[vi, vk])
                            writes(C[vi])
                            C[vi] = C[vi] + A[vi, vk]
        """,
    )


def test_a_loop_over_space_and_reduction_at_once_tests_for_the_first(becomes: Any) -> None:
    becomes(
        FUSED,
        place_init,
        """
        def f(A: f32[7, 5], C: f32[7]):
            for q in range(35):
                if q % 5 == 0:
                    C[q // 5] = 0.0
                with block("C", vi=spatial(7, q // 5), vk=reduce(5, q % 5)):
                    reads(C[vi], A[vi, vk])
                    writes(C[vi])
                    C[vi] = C[vi] + A[vi, vk]
        """,
    )


def test_meaning(keeps_meaning: Any) -> None:
    rows = np.arange(90, dtype=np.float32).reshape(30, 3)
    keeps_meaning(ROWS, place_init, rows, np.ones(30, np.float32))
    keeps_meaning(
        FUSED, place_init, np.arange(35, dtype=np.float32).reshape(7, 5), np.ones(7, np.float32)
    )


def test_a_reduction_over_nothing_is_initialised(becomes: Any) -> None:
    from tilewright.ir import interpret, parse_function

    c = np.ones(30, np.float32)
    interpret(place_init(parse_function(ROWS)), np.zeros((30, 0), np.float32), c)
    np.testing.assert_array_equal(c, 0.0)


def test_reduction_variables_of_two_loops(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[12, 4], C: f32[4]):
        for ko in range(3):
            for i in range(4):
                for ki in range(4):
                    with block("C", vi=spatial(4, i), vk=reduce(12, ko * 4 + ki)):
                        reads(A[vk, vi])
                        writes(C[vi])
                        with init():
                            C[vi] = 1.0
                        C[vi] = C[vi] + A[vk, vi]
    """
    a = np.arange(48, dtype=np.float32).reshape(12, 4)
    keeps_meaning(text, place_init, a, np.full(4, 9, np.float32))
