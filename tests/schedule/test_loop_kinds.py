"""parallel, vectorize, unroll, bind"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=8)
    s = p.schedule()
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, 4)
    s.reorder(i0, j, k, i1)
    s.parallel(i0)
    s.vectorize(i1)
    s.unroll(j)
    golden(str(s), "schedule/loop_kinds")
    p.check(s)


def test_threads(program: Any) -> None:
    p = program("elementwise")
    s = p.schedule()
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    assert 'thread(7, "threadIdx.x")' in str(s)
    p.check(s)


@pytest.mark.parametrize("kind", ["parallel", "vectorize"])
def test_loops_that_reduce_are_refused(program: Any, kind: str) -> None:
    s = program("matmul").schedule()
    message = "loop k feeds the reduce iterator vk of block C"
    with pytest.raises(ScheduleError, match=message):
        getattr(s, kind)("k")
    fused = s.fuse("j", "k")
    with pytest.raises(ScheduleError, match="feeds the reduce iterator vk"):
        getattr(s, kind)(fused)


def test_ordered_loops_are_refused(program: Any) -> None:
    p = program("running_sum")
    s = p.schedule()
    t, j = s.loops("step")
    with pytest.raises(ScheduleError, match="loop t feeds the ordered iterator vt of block step"):
        s.parallel(t)
    s.vectorize(j)
    p.check(s)


@pytest.mark.parametrize("factors", [(4,), (None, 3, 2), (5, 2)])
def test_parts_of_a_spatial_loop_stay_independent(program: Any, factors: Any) -> None:
    p = program("matmul", n=10)
    for position in range(len(factors) if len(factors) > 1 else 2):
        s = p.schedule()
        s.parallel(s.split("i", *factors)[position])
        p.check(s)


def test_fused_and_split_again_stays_independent(program: Any) -> None:
    p = program("elementwise", n=6, m=8)
    s = p.schedule()
    outer, inner = s.split(s.fuse("i", "j"), 4)
    s.parallel(outer)
    s.vectorize(inner)
    p.check(s)


def test_vectors_have_a_constant_length(program: Any) -> None:
    s = program("matmul", symbolic=True).schedule()
    with pytest.raises(ScheduleError, match="its extent n is not known yet"):
        s.vectorize("i")
    with pytest.raises(ScheduleError, match="cannot unroll loop i"):
        s.unroll("i")


def test_kinds_do_not_nest(program: Any) -> None:
    s = program("matmul").schedule()
    s.vectorize("j")
    with pytest.raises(ScheduleError, match="loop j inside it is vectorized"):
        s.vectorize("i")
    s.parallel("i")
    with pytest.raises(ScheduleError, match="the loop is vectorized already"):
        s.parallel("j")
    s = program("matmul").schedule()
    s.parallel("i")
    with pytest.raises(ScheduleError, match="loop i around it is parallel"):
        s.parallel("j")


def test_thread_axes(program: Any) -> None:
    s = program("elementwise").schedule()
    with pytest.raises(ScheduleError, match="there is no such axis") as caught:
        s.bind("i", "threadIdx.w")
    assert "did you mean threadIdx" in str(caught.value)
    s.bind("i", "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"loop i is bound to threadIdx\.x"):
        s.bind("j", "threadIdx.x")


SAME_ELEMENT = """
def f(A: f32[8], B: f32[4]):
    for i in range(8):
        with block("B", vi=spatial(4, i // 2)):
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi]
"""


def test_iterations_that_share_elements_are_refused() -> None:
    s = Schedule(parse_function(SAME_ELEMENT))
    with pytest.raises(ScheduleError, match="may touch the same elements of B"):
        s.parallel("i")


def test_statements_outside_of_blocks_are_refused() -> None:
    s = Schedule(parse_function("def f(A: f32[8]):\n    for i in range(8):\n        A[i] = 1.0\n"))
    with pytest.raises(ScheduleError, match="holds statements that are in no block"):
        s.parallel("i")


PRIVATE = """
def f(A: f32[8, 10], B: f32[8, 8]):
    T = alloc(f32[10])
    for i in range(8):
        for j in range(10):
            with block("T", vi=spatial(8, i), vj=spatial(10, j)):
                reads(A[vi, vj])
                writes(T[vj])
                T[vj] = A[vi, vj] * 2.0
        for j in range(8):
            with block("B", vi=spatial(8, i), vj=spatial(8, j)):
                reads(T[vj:vj + 3])
                writes(B[vi, vj])
                B[vi, vj] = T[vj] + T[vj + 2]
"""


def test_a_buffer_that_each_iteration_fills_anew_is_private() -> None:
    Schedule(parse_function(PRIVATE)).parallel("i")
    left_over = PRIVATE.replace("j in range(10)", "j in range(9)")
    with pytest.raises(ScheduleError, match="may touch the same elements of T"):
        Schedule(parse_function(left_over)).parallel("i")


def test_a_private_buffer_may_be_filled_up_to_where_it_is_read() -> None:
    """T has an element that nobody reads, and its loop a remainder that is cut off."""
    cut = PRIVATE.replace("T = alloc(f32[10])", "T = alloc(f32[11])")
    split = Schedule(parse_function(cut))
    split.split(split.loops("T")[1], None, 4)
    assert "where" in str(split)
    split.parallel("i")
    short = str(split.function).replace("parallel", "range").replace("< 10)", "< 9)")
    with pytest.raises(ScheduleError, match="may touch the same elements of T"):
        Schedule(parse_function(short)).parallel("i")
