"""compute_at(block, loop)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("chain", n=10)
    s = p.schedule()
    outer, _ = s.split(s.loops("C")[0], 4)
    loops = s.compute_at("A1", outer)
    assert [loop.name for loop in loops] == ["i", "j"]
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/compute_at")
    p.check(s)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_any_depth_keeps_the_result(program: Any, depth: int) -> None:
    p = program("chain")
    s = p.schedule()
    s.compute_at("A1", s.loops("C")[depth])
    s.compute_at("D", s.loops("E")[min(depth, 1)])
    s.compute_at("C", s.loops("E")[min(depth, 1)])
    p.check(s)


def test_a_reduction_moves_with_its_init(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.compute_at("C", s.loops("D")[1])
    assert len(s.loops("C")) == 3 and s.loops("C")[0] == s.loops("D")[0]
    p.check(s)


def test_windows_overlap_and_stay_inside(program: Any) -> None:
    p = program("window", n=13)
    s = p.schedule()
    outer, _ = s.split(s.loops("D")[0], 4)
    s.compute_at("S", outer)
    s.compute_at("P", outer)
    assert "range(6)" in str(s) and "< 15" in str(s)
    p.check(s)


def test_rows_that_all_consumers_share(program: Any) -> None:
    p = program("normalized")
    s = p.schedule()
    s.compute_at("T", s.loops("O")[0])
    s.compute_at("D", s.loops("O")[0])
    s.compute_at("M", s.loops("O")[0])
    assert len({s.loops(b)[0] for b in s.blocks()}) == 1
    p.check(s)


def test_fused_consumers_need_a_box_around(program: Any) -> None:
    p = program("chain", n=5, m=3)
    s = p.schedule()
    i, j = s.loops("D")
    outer, _ = s.split(s.fuse(i, j), 4)
    s.compute_at("C", outer)
    p.check(s)


def test_layouts_are_followed(program: Any) -> None:
    p = program("chain", n=8)
    s = p.schedule()
    s.transform_layout("A1", "A1", lambda i, j: (i // 4, j, i % 4))
    s.compute_at("A1", s.loops("C")[0])
    assert [loop.name for loop in s.loops("A1")] == ["i", "j"]
    p.check(s)


def test_symbolic_extents() -> None:
    text = """
def f(A: f32[n], B: f32[n]):
    T = alloc(f32[n])
    for i in range(n):
        with block("T", vi=spatial(n, i)):
            reads(A[vi])
            writes(T[vi])
            T[vi] = A[vi]
    for i in range(n):
        with block("B", vi=spatial(n, i)):
            reads(T[vi])
            writes(B[vi])
            B[vi] = T[vi]
"""
    s = Schedule(parse_function(text))
    outer, _ = s.split(s.loops("B")[0], 8)
    s.compute_at("T", outer)
    assert "vi=spatial(n, i_0 * 8 + i)" in str(s) and str(s).count("i_0 * 8 + i < n") == 1


def test_into_a_parallel_loop(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    i, j, _ = s.loops("C")
    s.parallel(i)
    s.compute_at("A1", j)
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    i, _, _ = s.loops("C")
    with pytest.raises(ScheduleError, match="cannot compute block C at loop i: block C is in loop"):
        s.compute_at("C", i)
    with pytest.raises(ScheduleError, match="block D reads C outside of loop i"):
        s.compute_at("C", s.loops("E")[0])
    with pytest.raises(ScheduleError, match="E is a parameter of the function"):
        s.compute_at("E", i)


def test_later_inputs_are_refused(program: Any) -> None:
    s = program("chain").schedule()
    s.decompose_reduction("C", s.loops("C")[2])
    with pytest.raises(ScheduleError, match="block C updates C in place"):
        s.compute_at("C", s.loops("D")[0])


def test_conditions_are_refused(program: Any) -> None:
    s = program("window").schedule()
    s.decompose_padding("P", s.loops("P")[0])
    with pytest.raises(ScheduleError, match="block P runs only where"):
        s.compute_at("P", s.loops("D")[0])


def test_buffers_with_versions_are_refused(program: Any) -> None:
    s = program("chain").schedule()
    i, j, _ = s.loops("C")
    s.cache_write("A1", 0)
    s.compute_at("A1_global", i)
    s.compute_at("A1", i)
    s.double_buffer("A1", i)
    with pytest.raises(ScheduleError, match=r"several instances of block .* write the same"):
        s.compute_at("A1_global", j)


def test_nobody_reads_it() -> None:
    text = """
def f(A: f32[4], B: f32[4]):
    T = alloc(f32[4])
    for i in range(4):
        with block("T", vi=spatial(4, i)):
            reads(A[vi])
            writes(T[vi])
            T[vi] = A[vi]
    for i in range(4):
        with block("B", vi=spatial(4, i)):
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="nobody reads what block T writes"):
        s.compute_at("T", s.loops("B")[0])


def test_indices_that_are_not_complete_are_refused() -> None:
    text = """
def f(A: f32[8], I: i64[4, 2], B: f32[4]):
    J = alloc(i64[4, 2])
    T = alloc(f32[4, 2])
    for i in range(4):
        for j in range(2):
            with block("J", vi=spatial(4, i), vj=spatial(2, j)):
                reads(I[vi, vj])
                writes(J[vi, vj])
                J[vi, vj] = I[vi, vj]
        for j in range(2):
            with block("T", vi=spatial(4, i), vj=spatial(2, j)):
                reads(A[0:8], J[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[J[vi, vj]]
        for j in range(1):
            with block("B", vi=spatial(4, i)):
                reads(T[vi, 0])
                writes(B[vi])
                B[vi] = T[vi, 0]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="block T indexes by J, which is not complete"):
        s.compute_at("T", s.loops("B")[1])
