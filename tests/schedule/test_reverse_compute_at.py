"""reverse_compute_at(block, loop)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text, interpret, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("chain", n=10)
    s = p.schedule()
    outer, _ = s.split(s.loops("C")[0], 4)
    loops = s.reverse_compute_at("D", outer)
    assert [loop.name for loop in loops] == ["i", "j"]
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/reverse_compute_at")
    p.check(s)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_chain_of_consumers(program: Any, depth: int) -> None:
    p = program("chain")
    s = p.schedule()
    loop = s.loops("C")[depth]
    s.reverse_compute_at("D", loop)
    s.reverse_compute_at("E", loop)
    assert len({s.loops(b)[0] for b in ("C", "D", "E")}) == 1
    p.check(s)


def test_into_fused_and_split_loops(program: Any) -> None:
    p = program("chain", n=5, m=3)
    s = p.schedule()
    i, j, _ = s.loops("C")
    outer, _ = s.split(s.fuse(i, j), 4)
    s.reverse_compute_at("D", outer)
    p.check(s)


def test_a_reduction_over_a_whole_row(program: Any) -> None:
    p = program("normalized")
    s = p.schedule()
    row = s.loops("D")[0]
    s.reverse_compute_at("T", row)
    s.reverse_compute_at("O", row)
    assert len(s.all_loops()) == 2 + 2 + 1 + 1
    p.check(s)


def test_a_layout_is_followed(program: Any) -> None:
    p = program("chain", m=13)
    s = p.schedule()
    s.transform_layout("C", "C", lambda i, j: (j // 4, i, j % 4))
    i, j, k = s.loops("C")
    j0, j1 = s.split(j, 4)
    s.reorder(j0, i, k, j1)
    s.reverse_compute_at("D", i)
    assert "j_0 * 4 + j < 13" in str(s)
    p.check(s)


def test_part_of_a_row_is_refused(program: Any) -> None:
    s = program("normalized").schedule()
    with pytest.raises(ScheduleError, match="one iteration of loop j writes only part"):
        s.reverse_compute_at("T", s.loops("D")[1])


def test_windows_are_refused(program: Any) -> None:
    s = program("window").schedule()
    with pytest.raises(ScheduleError, match="reads P at `vi \\+ vr`, of which one iteration"):
        s.reverse_compute_at("S", s.loops("P")[0])


def test_refusals(program: Any) -> None:
    s = program("chain").schedule()
    i, j, k = s.loops("C")
    with pytest.raises(ScheduleError, match=r"has not finished reducing C .* loop k reduces"):
        s.reverse_compute_at("D", k)
    with pytest.raises(ScheduleError, match="block C is in loop j already"):
        s.reverse_compute_at("C", j)
    with pytest.raises(ScheduleError, match="loop i comes after block A1"):
        s.reverse_compute_at("A1", i)
    with pytest.raises(ScheduleError, match="nothing that block E reads is written in loop i"):
        s.reverse_compute_at("E", i)


def test_inputs_that_are_not_ready(program: Any) -> None:
    s = program("normalized").schedule()
    with pytest.raises(ScheduleError, match="block O reads T, which block T writes later"):
        s.reverse_compute_at("O", s.loops("D")[0])


def test_guarded_reads_are_refused(program: Any) -> None:
    s = program("window").schedule()
    s.cache_read("P", "A")
    with pytest.raises(ScheduleError, match="block P does not always read A_global"):
        s.reverse_compute_at("P", s.loops("A_global")[0])


CHOICE = """
def f(A: f32[10], B: f32[10]):
    T = alloc(f32[{size}])
    for i in range({count}):
        with block("T", v=spatial({count}, i)):
            reads(A[v])
            writes(T[v])
            T[v] = A[v] * 2.0
    for j in range(10):
        with block("B", v=spatial(10, j)):
            reads(T[v])
            writes(B[v])
            B[v] = T[v] if v < 6 else 5.0
"""


def test_choices_among_elements_that_are_all_written() -> None:
    """Every instance has an iteration, whether it reads what that writes or not."""
    s = Schedule(parse_function(CHOICE.format(size=10, count=10)))
    outer, _ = s.split(s.loops("T")[0], 4)
    s.reverse_compute_at("B", outer)
    a, b = np.arange(10, dtype="f4"), np.zeros(10, "f4")
    interpret(s.function, a, b)
    np.testing.assert_array_equal(b, np.where(np.arange(10) < 6, 2 * a, 5))


@pytest.mark.parametrize(("size", "count"), [(10, 8), (8, 8)])
def test_choices_that_would_be_left_out(size: int, count: int) -> None:
    """Nobody writes what the last instances name and do not read."""
    s = Schedule(parse_function(CHOICE.format(size=size, count=count)))
    with pytest.raises(ScheduleError, match="block B does not always read T"):
        s.reverse_compute_at("B", s.loops("T")[0])


def test_parallel_loops_must_stay_parallel(program: Any) -> None:
    p = program("chain", n=5, m=3)
    s = p.schedule()
    i, j, _ = s.loops("C")
    outer, _ = s.split(s.fuse(i, j), 4)
    s.parallel(outer)
    with pytest.raises(ScheduleError, match="loop i_j_0 around it is parallel, and iterations"):
        s.reverse_compute_at("D", outer)


LOOKED_UP = """
def looked_up(X: i8[6, 8], T: i8[256], Y: i8[6, 8]):
    S = alloc(i8[6, 8])
    for i in range(6):
        for j in range(8):
            with block("S", vi=spatial(6, i), vj=spatial(8, j)):
                reads(X[vi, vj])
                writes(S[vi, vj])
                S[vi, vj] = X[vi, vj] + X[vi, vj]
    for i in range(6):
        for j in range(8):
            with block("Y", vi=spatial(6, i), vj=spatial(8, j)):
                reads(T[0:256], S[vi, vj])
                writes(Y[vi, vj])
                Y[vi, vj] = T[i64(S[vi, vj]) + {least}]
"""


def test_what_looks_up_elements_of_a_table_that_has_all_of_them() -> None:
    function = parse_function(LOOKED_UP.format(least=128))
    s = Schedule(function)
    s.reverse_compute_at("Y", s.loops("S")[0])
    x = np.arange(48).reshape(6, 8).astype(np.int8)
    table = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)
    found = np.zeros((6, 8), np.int8)
    interpret(s.function, x, table, found)
    np.testing.assert_array_equal(found, table[(x + x).astype(int) + 128])


def test_elements_that_may_lead_out_of_a_table_are_no_indices_before_they_are_complete() -> None:
    s = Schedule(parse_function(LOOKED_UP.format(least=127)))
    with pytest.raises(ScheduleError, match="uses S to index"):
        s.reverse_compute_at("Y", s.loops("S")[0])
