"""reindex(block, buffer, dimensions)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text, interpret, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("window")
    s = p.schedule()
    assert s.reindex("S", "P").name == "P_reindex"
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/reindex")
    p.check(s)


@pytest.mark.parametrize("buffer", ["A", "B", "C"])
def test_reads_and_writes(program: Any, buffer: str) -> None:
    p = program("matmul")
    s = p.schedule()
    s.split(s.loops("C")[0], 4)
    s.reindex("C", buffer)
    p.check(s)


def test_a_write_at_another_place(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.transform_layout("C", "C", lambda i, j: (j // 2, i, j % 2))
    s.reindex("C", "C")
    assert "C_reindex[vi, vj] = C_reindex[vi, vj] +" in str(s)
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("window").schedule()
    with pytest.raises(ScheduleError, match="block P may read `vi - 1`, outside of A"):
        s.reindex("P", "A")
    s = program("diamond").schedule()
    with pytest.raises(ScheduleError, match="block UV touches T at 2 places"):
        s.reindex("UV", "T")
    s.loop_partition(s.loops("T")[0], 2)
    with pytest.raises(ScheduleError, match="block T_1 writes T too"):
        s.reindex("T", "T")


def test_indices_that_were_loaded_are_refused() -> None:
    text = """
def f(A: f32[8], I: i64[4], B: f32[4]):
    for i in range(4):
        with block("B", vi=spatial(4, i)):
            reads(A[0:8], I[vi])
            writes(B[vi])
            B[vi] = A[I[vi]]
"""
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="depends on more than its iterators"):
        s.reindex("B", "A")


WINDOWS = """
def f(A: f32[8, 9], C: f32[7, 9]):
    for i in range(7):
        for j in range(8):
            for r in range(2):
                with block("C", y=spatial(7, i), x=spatial(8, j), v=reduce(2, r)):
                    reads(A[y + v, x + 1])
                    writes(C[y, x])
                    with init():
                        C[y, x] = 0.0
                    C[y, x] = C[y, x] + A[y + v, x + 1]
"""


def test_dimensions_that_are_not_named_stay() -> None:
    before = Schedule(parse_function(WINDOWS))
    s = before.copy()
    assert s.reindex("C", "A", [0]).name == "A_reindex"
    assert "A_reindex = alloc(f32[7, 2, 9])" in str(s)
    assert "A_reindex[y, v, x + 1]" in str(s)
    x = np.arange(72, dtype="f4").reshape(8, 9)
    results = [np.zeros((7, 9), "f4") for _ in range(2)]
    for schedule, result in zip((before, s), results, strict=True):
        interpret(schedule.function, x, result)
    np.testing.assert_array_equal(results[0], results[1])


def test_dimensions_that_are_not_there_are_refused() -> None:
    s = Schedule(parse_function(WINDOWS))
    with pytest.raises(ScheduleError, match=r"A has the dimensions 0 to 1, not \[2\]"):
        s.reindex("C", "A", [2])
    with pytest.raises(ScheduleError, match="only of a buffer that is read"):
        s.reindex("C", "C", [0])
