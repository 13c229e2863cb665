"""compute_inline(block)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.compute_inline("A1")
    s.compute_inline("D")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/compute_inline")
    p.check(s)


def test_all_readers_get_the_formula(program: Any) -> None:
    p = program("diamond")
    s = p.schedule()
    s.compute_inline("T")
    assert "T" not in str(s).split("W: ")[1].split("\n")[1]
    s.compute_inline("UV")
    assert [b.name for b in s.blocks()] == ["W"]
    p.check(s)


def test_a_guarded_read_keeps_its_guard(program: Any) -> None:
    p = program("window")
    s = p.schedule()
    s.compute_inline("P")
    assert "alloc(f32[11])" in str(s) and "P = alloc" not in str(s)
    p.check(s)


def test_an_inlined_layout_is_solved_for_the_iterators(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.transform_layout("A1", "A1", lambda i, j: (j // 4, i, j % 4))
    s.compute_inline("A1")
    assert "A[vi, vk] + 1.0" in str(s)
    p.check(s)


def test_after_loops_were_reshaped(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    i, j = s.loops("A1")
    s.split(s.fuse(i, j), 4)
    s.compute_at("A1", s.loops("C")[0])
    s.compute_inline("A1")
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    with pytest.raises(ScheduleError, match="cannot inline block C: block C runs over the reduce"):
        s.compute_inline("C")
    with pytest.raises(ScheduleError, match="E is a parameter of the function"):
        s.compute_inline("E")
    s.blockize(s.loops("A1")[1])
    with pytest.raises(ScheduleError, match="block A1 stands in block"):
        s.compute_inline("A1")


def test_two_writers_are_refused(program: Any) -> None:
    s = program("chain").schedule()
    s.loop_partition(s.loops("A1")[0], 3)
    with pytest.raises(ScheduleError, match="block A1_1 writes A1 too"):
        s.compute_inline("A1")


def test_writes_that_cannot_be_solved_are_refused() -> None:
    text = """
def f(A: f32[5], B: f32[5]):
    T = alloc(f32[10])
    for i in range(5):
        with block("T", vi=spatial(5, i)):
            reads(A[vi])
            writes(T[vi * vi])
            T[vi * vi] = A[vi]
    for i in range(5):
        with block("B", vi=spatial(5, i)):
            reads(T[0])
            writes(B[vi])
            B[vi] = T[0]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="does not determine its iterators"):
        s.compute_inline("T")


def test_what_is_read_must_not_change_in_between() -> None:
    """T is made from a buffer that holds something else when T is read."""
    text = """
def f(A: f32[4], B: f32[4]):
    H = alloc(f32[1])
    T = alloc(f32[4])
    for i in range(4):
        with block("H", vi=spatial(4, i)):
            reads(A[vi])
            writes(H[0])
            H[0] = A[vi]
        with block("T", vi=spatial(4, i)):
            reads(H[0])
            writes(T[vi])
            T[vi] = H[0]
    for i in range(4):
        with block("B", vi=spatial(4, i)):
            reads(T[vi])
            writes(B[vi])
            B[vi] = T[vi]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="block H writes anew in every iteration of loop i"):
        s.compute_inline("T")


def test_results_read_outside_of_blocks_are_refused() -> None:
    text = """
def f(A: i64[4], B: f32[4]):
    N = alloc(i64[1])
    with block("N"):
        reads(A[0])
        writes(N[0])
        N[0] = A[0]
    for i in range(4):
        if N[0] > i:
            with block("B", vi=spatial(4, i)):
                writes(B[vi])
                B[vi] = 1.0
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="N is used outside of blocks"):
        s.compute_inline("N")


def test_a_body_that_does_more_is_refused() -> None:
    text = """
def f(A: f32[4], B: f32[4]):
    T = alloc(f32[4])
    for i in range(4):
        with block("T", vi=spatial(4, i)):
            reads(A[vi])
            writes(T[vi])
            if A[vi] > 0.0:
                T[vi] = A[vi]
            else:
                T[vi] = 0.0
    for i in range(4):
        with block("B", vi=spatial(4, i)):
            reads(T[vi])
            writes(B[vi])
            B[vi] = T[vi]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="does more than to store one value"):
        s.compute_inline("T")
