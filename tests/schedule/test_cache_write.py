"""cache_write(block, buffer, scope)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    assert s.cache_write("C", 0, "local").name == "C_local"
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/cache_write")
    p.check(s)


def test_the_way_to_a_register_tile(program: Any) -> None:
    p = program("matmul", n=10, m=9)
    s = p.schedule()
    copy = s.cache_write("C", "C", "local")
    i, j, k = s.loops("C")
    i0, j0, i1, j1 = s.tile(i, j, 4, 4)
    s.reorder(i0, j0, k, i1, j1)
    s.reverse_compute_at(copy, j0)
    p.check(s)


def test_two_results(program: Any) -> None:
    p = program("argmax")
    s = p.schedule()
    s.cache_write("R", "R_1")
    s.cache_write("R", "R_0")
    assert [b.name for b in s.blocks()] == ["R", "R_0_global", "R_1_global"]
    p.check(s)


def test_before_readers_in_the_same_loop(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    row = s.loops("C")[0]
    s.reverse_compute_at("D", row)
    s.cache_write("C", 0)
    assert [b.name for b in s.blocks()] == ["A1", "C", "C_global", "D", "E"]
    assert s.loops("C_global")[0] == row
    p.check(s)


def test_after_fused_loops(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    i, j, _ = s.loops("C")
    s.split(s.fuse(i, j), 4)
    s.cache_write("C", 0)
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    i, j, _ = s.loops("C")
    fused = s.fuse(i, j)
    outer, _ = s.split(fused, 4)
    s.compute_at("A1", outer)
    s.reverse_compute_at("D", outer)
    with pytest.raises(ScheduleError, match="what an iteration of loop i_j_0 writes is no box"):
        s.cache_write("C", 0)
    s = program("chain").schedule()
    s.loop_partition(s.loops("D")[0], 3)
    with pytest.raises(ScheduleError, match="cannot cache D for block D: block D_1 writes D too"):
        s.cache_write("D", 0)


def test_what_is_not_all_written_is_refused() -> None:
    text = """
def f(A: f32[8], B: f32[8]):
    for i in range(4):
        with block("B", vi=spatial(8, i * 2)):
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="the loops run all instances of block B"):
        s.cache_write("B", 0)


def test_conditions_are_refused(program: Any) -> None:
    s = program("window").schedule()
    s.decompose_padding("P", s.loops("P")[0])
    with pytest.raises(ScheduleError, match="block P_pad writes P too"):
        s.cache_write("P", 0)
