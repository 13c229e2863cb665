"""rfactor(loop, axis)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import interpret, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    _, k1 = s.split("k", 3)
    before = str(s)
    rf = s.rfactor(k1, 0)
    assert rf.name == "C_rf"
    golden(f"{before}-->\n{s}", "schedule/rfactor")
    p.check(s)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("factor", [2, 4, 5])
def test_uneven_splits_and_all_axes(program: Any, axis: int, factor: int) -> None:
    p = program("matmul")
    for position in (0, 1):
        s = p.schedule()
        s.rfactor(s.split("k", factor)[position], axis)
        p.check(s)


def test_partial_results_run_in_parallel(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    k0, _ = s.split("k", 3)
    s.rfactor(k0, 2)
    i, j, k0, k1 = s.loops("C_rf")
    s.reorder(k0, i, j, k1)
    s.parallel(k0)
    s.decompose_reduction("C_rf", k1)
    p.check(s)


def test_the_whole_reduction(program: Any) -> None:
    p = program("row_max")
    s = p.schedule()
    s.rfactor(s.loops("M")[1], 1)
    s.vectorize(s.loops("M_rf")[1])
    p.check(s)


def test_several_values_at_once(program: Any) -> None:
    p = program("argmax")
    s = p.schedule()
    _, k1 = s.split(s.loops("R")[1], 4)
    s.rfactor(k1, 1)
    p.check(s)


STARTS_FROM_BIAS = """
def f(A: f32[3, 8], bias: f32[3], C: f32[3]):
    for i in range(3):
        for k in range(8):
            with block("C", vi=spatial(3, i), vk=reduce(8, k)):
                reads(A[vi, vk], bias[vi])
                writes(C[vi])
                with init():
                    C[vi] = bias[vi]
                C[vi] = {update}
"""


def test_partial_results_start_from_the_identity() -> None:
    s = Schedule(parse_function(STARTS_FROM_BIAS.format(update="C[vi] + A[vi, vk]")))
    s.rfactor("k")
    text = str(s)
    assert "C_rf[vk, vi] = 0.0" in text and text.count("C[vi] = bias[vi]") == 1


def test_unknown_updates_are_refused() -> None:
    s = Schedule(parse_function(STARTS_FROM_BIAS.format(update="C[vi] - A[vi, vk]")))
    with pytest.raises(ScheduleError, match="is not of the form state = combine"):
        s.rfactor("k")
    s = Schedule(parse_function(STARTS_FROM_BIAS.format(update="C[vi] + C[vi] * A[vi, vk]")))
    with pytest.raises(ScheduleError, match="is not of the form state = combine"):
        s.rfactor("k")


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match="it does not feed reduce iterators of block C alone"):
        s.rfactor("j")
    with pytest.raises(ScheduleError, match="there is no axis 3 in 3 dimensions"):
        s.rfactor("k", 3)
    s.decompose_reduction("C", s.loops("C")[2])
    with pytest.raises(ScheduleError, match="block C is no reduction with an init"):
        s.rfactor("k")
    s = program("matmul").schedule()
    s.loop_partition("k", 2)
    with pytest.raises(ScheduleError, match="block C_1 writes C too"):
        s.rfactor(s.loops("C")[2])


STEPS = """
def f(A: f32[4, 6], S: f32[5, 6], B: f32[5, 6]):
    for t in range(4):
        for i in range(6):
            for k in range(6):
                with block("S", vt=ordered(4, t), vi=spatial(6, i), vk=reduce(6, k)):
                    reads(A[vt, vk], B[vt, vi])
                    writes(S[vt + 1, vi])
                    with init():
                        S[vt + 1, vi] = 0.0
                    S[vt + 1, vi] = S[vt + 1, vi] + A[vt, vk] * B[vt, vi]
        for i in range(6):
            with block("B", vt=ordered(4, t), vi=spatial(6, i)):
                reads(S[vt + 1, vi])
                writes(B[vt + 1, vi])
                B[vt + 1, vi] = S[vt + 1, vi]
"""


def test_loops_that_hold_other_blocks_stay_around_both() -> None:
    function = parse_function(STEPS)
    s = Schedule(function)
    _, part = s.split(s.loops("S")[2], 3)
    s.rfactor(part, 2)
    around = [s.loops(name)[0].var.name for name in ("S_rf", "S", "B")]
    assert around == ["t", "t", "t"]
    a = np.arange(24, dtype="f4").reshape(4, 6)
    results: list[Any] = []
    for made in (function, s.function):
        b = np.ones((5, 6), "f4")
        interpret(made, a, np.zeros((5, 6), "f4"), b)
        results.append(b)
    np.testing.assert_array_equal(*results)


def test_a_loop_outside_that_reduces_as_well() -> None:
    s = Schedule(
        parse_function("""
def f(A: f32[4, 6], B: f32[1], C: f32[4]):
    for t in range(4):
        for k in range(6):
            with block("B", vt=reduce(4, t), vk=reduce(6, k)):
                reads(A[vt, vk])
                writes(B[0])
                with init():
                    B[0] = 0.0
                B[0] = B[0] + A[vt, vk]
        with block("C", vt=spatial(4, t)):
            writes(C[vt])
            C[vt] = 1.0
""")
    )
    with pytest.raises(ScheduleError, match="loop t holds more than the loops around block B"):
        s.rfactor(s.loops("B")[1], 0)
