"""Local buffers that live across phases lose the dimensions that threads index."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import pytest

from tilewright.ir import parse_function
from tilewright.lower import drop_thread_dimensions
from tilewright.support.errors import UserError


def test_dimensions_of_threads_are_dropped(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[4, 8, 16, 2], B: f32[4, 8, 16, 2]):
            for b in thread(4, "blockIdx.x"):
                acc = alloc(f32[8, 16, 2], scope="local")
                for y in thread(8, "threadIdx.y"):
                    for x in thread(16, "threadIdx.x"):
                        for i in range(2):
                            acc[y, x, i] = 0.0
                for k in range(3):
                    for y in thread(8, "threadIdx.y"):
                        for x in thread(16, "threadIdx.x"):
                            for i in range(2):
                                acc[y, x, i] = acc[y, x, i] + A[b, y, x, i]
                for x in thread(16, "threadIdx.x"):
                    for y in thread(8, "threadIdx.y"):
                        B[b, y, x, 0] = acc[y, x, 1]
        """,
        drop_thread_dimensions,
        """
        def f(A: f32[4, 8, 16, 2], B: f32[4, 8, 16, 2]):
            for b in thread(4, "blockIdx.x"):
                acc = alloc(f32[2], scope="local")
                for y in thread(8, "threadIdx.y"):
                    for x in thread(16, "threadIdx.x"):
                        for i in range(2):
                            acc[i] = 0.0
                for k in range(3):
                    for y in thread(8, "threadIdx.y"):
                        for x in thread(16, "threadIdx.x"):
                            for i in range(2):
                                acc[i] = acc[i] + A[b, y, x, i]
                for x in thread(16, "threadIdx.x"):
                    for y in thread(8, "threadIdx.y"):
                        B[b, y, x, 0] = acc[1]
        """,
    )


def test_axes_of_one_thread_may_be_missing(becomes: Any) -> None:
    becomes(
        """
        def f(B: f32[16]):
            for b in thread(4, "blockIdx.x"):
                acc = alloc(f32[1, 16], scope="local")
                for y in thread(1, "threadIdx.y"):
                    for x in thread(16, "threadIdx.x"):
                        acc[0, x] = 0.0
                        B[x] = acc[0, x]
        """,
        drop_thread_dimensions,
        """
        def f(B: f32[16]):
            for b in thread(4, "blockIdx.x"):
                acc = alloc(f32[()], scope="local")
                for y in thread(1, "threadIdx.y"):
                    for x in thread(16, "threadIdx.x"):
                        acc[()] = 0.0
                        B[x] = acc[()]
        """,
    )


def test_what_neighbours_have_is_asked_for(becomes: Any) -> None:
    """By four of them where not all threads of a warp ask."""
    becomes(
        """
        def f(B: f32[2, 32]):
            for b in thread(1, "blockIdx.x"):
                part = alloc(f32[2, 32], scope="local")
                for y in thread(2, "threadIdx.y"):
                    for x in thread(32, "threadIdx.x"):
                        part[y, x] = f32(x)
                for y in thread(2, "threadIdx.y"):
                    for x in thread(32, "threadIdx.x"):
                        B[y, x] = part[y, x // 4 * 4 + 1]
                        if x < 8:
                            B[y, x] = part[y, x // 4 * 4]
        """,
        drop_thread_dimensions,
        """
        def f(B: f32[2, 32]):
            for b in thread(1, "blockIdx.x"):
                part = alloc(f32[()], scope="local")
                for y in thread(2, "threadIdx.y"):
                    for x in thread(32, "threadIdx.x"):
                        part[()] = f32(x)
                for y in thread(2, "threadIdx.y"):
                    for x in thread(32, "threadIdx.x"):
                        B[y, x] = of_lane(part[()], i32(x // 4 * 4 + 1), 32)
                        if x < 8:
                            B[y, x] = of_lane(part[()], i32(x // 4 * 4), 4)
        """,
    )


def test_other_buffers_stay_as_they_are() -> None:
    text = """
        def f(B: f32[16]):
            for b in thread(4, "blockIdx.x"):
                S = alloc(f32[16], scope="shared")
                one = alloc(f32[2], scope="local")
                one[1] = 0.0
                for x in thread(16, "threadIdx.x"):
                    own = alloc(f32[4], scope="local")
                    own[2] = 0.0
                    S[x] = own[2]
        """
    function = parse_function(dedent(text))
    assert drop_thread_dimensions(function) is function


TWO_PHASES = """
def f(B: f32[16]):
    for b in thread(4, "blockIdx.x"):
        acc = alloc(f32[16, 16], scope="local")
        for y in thread(16, "threadIdx.y"):
            for x in thread(16, "threadIdx.x"):
                acc[y, x] = 0.0
        for y in thread(16, "threadIdx.y"):
            for x in thread(16, "threadIdx.x"):
                B[x] = acc[{}]
"""


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (
            "x, y",
            "cannot keep `acc[x, y]` in a thread's own memory: it is indexed by threadIdx.x, "
            "threadIdx.y here, by threadIdx.y, threadIdx.x elsewhere",
        ),
        (
            "y, 15 - x",
            "cannot keep `acc[y, 15 - x]` in a thread's own memory: its first dimensions are not "
            "indexed by the loops over threadIdx.y and threadIdx.x",
        ),
    ],
)
def test_accesses_that_do_not_agree_are_refused(indices: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        drop_thread_dimensions(parse_function(TWO_PHASES.format(indices)))
    assert f"B[x] = acc[{indices}]\n" in caught.value.listing
    assert "scope shared" in caught.value.remedy


def test_a_statement_in_no_phase_has_no_thread_to_name() -> None:
    text = """
        def f(B: f32[16]):
            for b in thread(4, "blockIdx.x"):
                acc = alloc(f32[16], scope="local")
                for x in thread(16, "threadIdx.x"):
                    acc[x] = 0.0
                B[0] = acc[0]
        """
    with pytest.raises(UserError, match="indexed by no loop over threads here, by threadIdx"):
        drop_thread_dimensions(parse_function(dedent(text)))
