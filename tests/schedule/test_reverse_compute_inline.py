"""reverse_compute_inline(block)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.reverse_compute_inline("E")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/reverse_compute_inline")
    p.check(s)


def test_into_a_producer_whose_loops_were_reshaped(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    i, j = s.loops("D")
    s.split(s.fuse(i, j), 4)
    s.reverse_compute_inline("E")
    assert [b.name for b in s.blocks()] == ["A1", "C", "D"]
    p.check(s)


def test_a_transposed_consumer_is_solved() -> None:
    text = """
def f(A: f32[3, 5], B: f32[5, 3]):
    T = alloc(f32[3, 5])
    for i in range(3):
        for j in range(5):
            with block("T", vi=spatial(3, i), vj=spatial(5, j)):
                reads(A[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[vi, vj]
    for i in range(5):
        for j in range(3):
            with block("B", vi=spatial(5, i), vj=spatial(3, j)):
                reads(T[vj, vi])
                writes(B[vi, vj])
                B[vi, vj] = T[vj, vi] + 1.0
"""
    s = Schedule(parse_function(text))
    s.reverse_compute_inline("B")
    assert "B[vj, vi] = A[vi, vj] + 1.0" in str(s)


def test_a_consumer_of_a_part_gets_a_predicate() -> None:
    text = """
def f(A: f32[9], B: f32[4]):
    T = alloc(f32[9])
    for i in range(9):
        with block("T", vi=spatial(9, i)):
            reads(A[vi])
            writes(T[vi])
            T[vi] = A[vi]
    for i in range(4):
        with block("B", vi=spatial(4, i)):
            reads(T[vi + 3])
            writes(B[vi])
            B[vi] = T[vi + 3] * 2.0
"""
    s = Schedule(parse_function(text))
    s.reverse_compute_inline("B")
    assert "where(i >= 3 and i < 7)" in str(s) and "B[vi - 3] = A[vi] * 2.0" in str(s)


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    with pytest.raises(ScheduleError, match="block C runs over the reduce iterator vk") as caught:
        s.reverse_compute_inline("D")
    assert "use reverse_compute_at" in caught.value.remedy
    with pytest.raises(ScheduleError, match="block C into its producer: block C runs over"):
        s.reverse_compute_inline("C")
    with pytest.raises(ScheduleError, match="no block writes what it reads"):
        s.reverse_compute_inline("A1")


def test_several_producers_or_readers_are_refused(program: Any) -> None:
    s = program("normalized").schedule()
    with pytest.raises(ScheduleError, match="2 blocks write what it reads: D, T"):
        s.reverse_compute_inline("O")
    s = program("diamond").schedule()
    with pytest.raises(ScheduleError, match="block W reads T too"):
        s.reverse_compute_inline("UV")


def test_guarded_reads_leave_instances_over(program: Any) -> None:
    s = program("window").schedule()
    s.cache_read("P", "A")
    with pytest.raises(ScheduleError, match="makes an element of A_global for every instance"):
        s.reverse_compute_inline("P")


def test_two_places_are_refused() -> None:
    text = """
def f(A: f32[9], B: f32[8]):
    T = alloc(f32[9])
    for i in range(9):
        with block("T", vi=spatial(9, i)):
            reads(A[vi])
            writes(T[vi])
            T[vi] = A[vi]
    for i in range(8):
        with block("B", vi=spatial(8, i)):
            reads(T[vi:vi + 2])
            writes(B[vi])
            B[vi] = T[vi] + T[vi + 1]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="block B reads T at 2 places"):
        s.reverse_compute_inline("B")
