"""double_buffer(block, loop)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def _staged(program: Any) -> tuple[Any, Any, Any]:
    """Rows of B are copied for each block of k."""
    p = program("matmul", k=6)
    s = p.schedule()
    i, j, k = s.loops("C")
    k0, k1 = s.split(k, 2)
    s.reorder(k0, i, j, k1)
    s.decompose_reduction("C", k0)
    s.compute_at(s.cache_read("C", "B", "shared"), k0)
    return p, s, k0


def test_before_and_after(program: Any, golden: Any) -> None:
    p, s, k0 = _staged(program)
    before = function_text(s.function)
    s.double_buffer("B_shared", k0)
    golden(f"{before}-->\n{s}", "schedule/double_buffer")
    p.check(s)


def test_a_reduction_that_ends_within_an_iteration(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    row = s.loops("C")[0]
    s.reverse_compute_at("D", row)
    s.double_buffer("C", row)
    assert "C = alloc(f32[2, 7, 5])" in str(s)
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    i, _, _ = s.loops("C")
    with pytest.raises(ScheduleError, match="block D uses C outside of loop i"):
        s.double_buffer("C", i)
    with pytest.raises(ScheduleError, match="block A1 is not in loop i"):
        s.double_buffer("A1", i)
    with pytest.raises(ScheduleError, match="E is a parameter of the function"):
        s.double_buffer("E", s.loops("E")[0])
    s.parallel(i)
    with pytest.raises(ScheduleError, match="the loop is parallel already"):
        s.double_buffer("C", i)


def test_values_that_outlive_an_iteration() -> None:
    text = """
def f(A: f32[6], B: f32[6]):
    T = alloc(f32[1])
    S = alloc(f32[1])
    for i in range(6):
        with block("B", vi=ordered(6, i)):
            reads(T[0], S[0])
            writes(B[vi])
            B[vi] = T[0] + S[0]
        with block("T", vi=ordered(6, i)):
            reads(A[vi])
            writes(T[0])
            T[0] = A[vi]
        with block("S", vi=ordered(6, i)):
            reads(S[0], A[vi])
            writes(S[0])
            S[0] = S[0] + A[vi]
        with block("C", vi=ordered(6, i)):
            reads(S[0])
            writes(B[vi])
            B[vi] = S[0]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="block B may read from T what an earlier iteration"):
        s.double_buffer("T", "i")
    s = Schedule(parse_function(text.replace("T[0] + S[0]", "T[0]").replace("T[0], S[0]", "T[0]")))
    with pytest.raises(ScheduleError, match="block S accumulates into S along loop i"):
        s.double_buffer("S", "i")


def test_accumulation_along_the_loop(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    k = s.loops("C")[2]
    s.reorder(k, *s.loops("C")[:2])
    s.compute_at("A1", k)
    s.double_buffer("A1", k)
    p.check(s)
    with pytest.raises(ScheduleError, match="block D uses C outside of loop k"):
        s.double_buffer("C", k)
