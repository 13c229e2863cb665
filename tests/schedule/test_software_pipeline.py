"""software_pipeline(loop, stages)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text, interpret, parse_function
from tilewright.schedule import Schedule, ScheduleError


def _staged(program: Any) -> tuple[Any, Any, Any]:
    """Copies of both operands for each block of k, one at a place that all blocks share."""
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
    s.software_pipeline(k0, [0, 1])
    golden(f"{before}-->\n{s}", "schedule/software_pipeline")
    p.check(s)


@pytest.mark.parametrize("stages", [(0, 1, 2), (0, 0, 1), (0, 1, 1)])
def test_three_stages_over_rows(program: Any, stages: Any) -> None:
    p = program("chain")
    s = p.schedule()
    row = s.loops("C")[0]
    s.compute_at("A1", row)
    s.reverse_compute_at("D", row)
    s.software_pipeline(row, stages)
    p.check(s)


def test_a_buffer_that_iterations_share_gets_versions() -> None:
    """One row of T serves all rows in turn; while three are under way, there are three of it."""
    text = """
def f(A: f32[6, 5], B: f32[6, 5]):
    T = alloc(f32[5])
    for i in range(6):
        for j in range(5):
            with block("T", vi=ordered(6, i), vj=spatial(5, j)):
                reads(A[vi, vj])
                writes(T[vj])
                T[vj] = A[vi, vj] * 2.0
        for j in range(5):
            with block("U", vi=spatial(6, i), vj=spatial(5, j)):
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj]
        for j in range(5):
            with block("V", vi=spatial(6, i), vj=spatial(5, j)):
                reads(B[vi, vj], T[vj])
                writes(B[vi, vj])
                B[vi, vj] = B[vi, vj] + T[vj]
"""
    s = Schedule(parse_function(text))
    s.software_pipeline("i", [0, 1, 2])
    assert "T = alloc(f32[3, 5])" in str(s) and "(i + 2) % 3" in str(s)
    a, b = np.arange(30, dtype="float32").reshape(6, 5), np.zeros((6, 5), "float32")
    interpret(s.function, a, b)
    np.testing.assert_array_equal(b, a * 3)


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    row = s.loops("C")[0]
    s.compute_at("A1", row)
    with pytest.raises(ScheduleError, match="its body has 2 statements"):
        s.software_pipeline(row, [0, 1, 2])
    with pytest.raises(ScheduleError, match="the stages do not ascend from 0"):
        s.software_pipeline(row, [1, 0])
    with pytest.raises(ScheduleError, match="there is only one stage"):
        s.software_pipeline(row, [0, 0])
    s.annotate(row, "hot")
    with pytest.raises(ScheduleError, match="carries the annotations hot"):
        s.software_pipeline(row, [0, 1])


def test_short_loops_are_refused(program: Any) -> None:
    s = program("chain", n=1).schedule()
    row = s.loops("C")[0]
    s.compute_at("A1", row)
    with pytest.raises(ScheduleError, match="its 1 iterations may be fewer than its 2 stages"):
        s.software_pipeline(row, [0, 1])


def test_inits_go_first(program: Any) -> None:
    s = program("chain").schedule()
    k = s.loops("C")[2]
    s.reorder(k, *s.loops("C")[:2])
    s.compute_at("A1", k)
    with pytest.raises(ScheduleError, match="block C starts its reduction in the loop"):
        s.software_pipeline(k, [0, 1])


def test_values_from_earlier_iterations_are_refused() -> None:
    text = """
def f(A: f32[6], B: f32[6]):
    T = alloc(f32[1])
    with block("start"):
        writes(T[0])
        T[0] = 0.0
    for i in range(6):
        with block("B", vi=ordered(6, i)):
            reads(T[0])
            writes(B[vi])
            B[vi] = T[0]
        with block("T", vi=ordered(6, i)):
            reads(A[vi])
            writes(T[0])
            T[0] = A[vi]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="block start uses T outside of loop i"):
        s.software_pipeline("i", [0, 1])
