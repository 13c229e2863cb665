"""reorder(*loops)"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tensor import te


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    i, _, k = s.loops("C")
    s.reorder(k, i)
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/reorder")


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_every_order_keeps_the_result(program: Any, order: tuple[int, ...]) -> None:
    p = program("matmul", n=4)
    s = p.schedule()
    i, j, k = s.loops("C")
    loops = (i, j, *s.split(k, 4))
    s.reorder(*(loops[o] for o in order))
    assert s.loops("C") == tuple(loops[o] for o in order)
    p.check(s)


def test_loops_that_are_not_named_stay(program: Any) -> None:
    s = program("matmul").schedule()
    i, j, k = s.loops("C")
    s.reorder(k, i)
    assert s.loops("C") == (k, j, i)


def test_refusals(program: Any) -> None:
    s = program("row_max").schedule()
    i, k = s.loops("M")
    with pytest.raises(ScheduleError, match="cannot reorder i, i: loop i is named twice"):
        s.reorder(i, i)
    with pytest.raises(ScheduleError, match="has siblings or is not directly inside another loop"):
        s.reorder(s.loops("D")[0], k)
    with pytest.raises(ScheduleError, match="there is no loop"):
        s.reorder()


def test_what_runs_in_order_passes_loops_that_nothing_is_handed_along(program: Any) -> None:
    p = program("running_sum")
    s = p.schedule()
    t, j = s.loops("step")
    s.reorder(j, t)
    assert s.loops("step") == (j, t)
    s.parallel(j)
    p.check(s)


@pytest.mark.parametrize("at", [lambda j: 3 - j, lambda j: te.maximum(j - 1, 0)])
def test_what_runs_in_order_keeps_its_place(at: Any) -> None:
    X, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    first = te.compute((1, 4), lambda _, j: X[0, j], name="first")
    step = te.compute((6, 4), lambda t, j: state[t - 1, at(j)] + X[t, j], name="step")
    scan = te.scan(first, step, state, name="S")
    s = Schedule(te.function([X], [scan] if isinstance(scan, te.Tensor) else list(scan), name="f"))
    t, j = s.loops("step")
    with pytest.raises(ScheduleError, match="loop t feeds the ordered iterator vt of block step"):
        s.reorder(j, t)


def test_a_reduction_begins_with_its_init(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    outer, inner = s.split(s.fuse("j", "k"), 4)
    with pytest.raises(ScheduleError, match="feed both reduce and spatial iterators of block C"):
        s.reorder(inner, outer)
    s.reorder(outer, inner, s.loop("i"))
    p.check(s)
    s.decompose_reduction("C", outer)
    s.reorder(s.loop_of(inner).var, s.loop_of(outer).var)
    p.check(s)


REPEATED = """
def f(A: f32[6], C: f32[1]):
    for r in range(2):
        for k in range(6):
            with block("C", vi=spatial(1, 0), vk=reduce(6, k)):
                reads(A[vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vk]
"""


def test_a_reduction_that_is_repeated_stays_whole() -> None:
    s = Schedule(parse_function(REPEATED))
    with pytest.raises(ScheduleError, match="iterations of loop r run the same instances of block"):
        s.reorder("k", "r")
    with pytest.raises(ScheduleError, match="iterations of loop r reduce the same elements again"):
        s.decompose_reduction("C", "r")
    s.decompose_reduction("C", "k")


PASSED_ON = """
def f(A: f32[6, 6], B: f32[6, 6]):
    T = alloc(f32[6, 6])
    for i in range(6):
        for j in range(6):
            with block("T", vi=spatial(6, i), vj=spatial(6, j)):
                reads(A[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[vi, vj] * 2.0
            with block("B", vi=spatial(6, i), vj=spatial(6, j)):
                reads(T[vi, {index}])
                writes(B[vi, vj])
                B[vi, vj] = T[vi, {index}] + 1.0
"""


def test_blocks_that_hand_values_on_within_an_iteration_move_together() -> None:
    s = Schedule(parse_function(PASSED_ON.format(index="vj")))
    i, j = s.loops("B")
    s.reorder(j, i)
    s.parallel(j)
    s.vectorize(i)


def test_blocks_that_hand_values_to_other_iterations_stay() -> None:
    both = PASSED_ON.format(index="max(vj - 1, 0)").replace("T[vi, max", "T[max(vi - 1, 0), max")
    s = Schedule(parse_function(both))
    i, j = s.loops("B")
    with pytest.raises(ScheduleError, match="loop i hands T from one iteration to another"):
        s.reorder(j, i)


def test_values_that_are_handed_along_one_loop_keep_their_order() -> None:
    s = Schedule(parse_function(PASSED_ON.format(index="max(vj - 1, 0)")))
    i, j = s.loops("B")
    s.reorder(j, i)
    assert s.loops("B") == (j, i)
    with pytest.raises(ScheduleError, match="loop j may touch the same elements of T"):
        s.parallel(j)
    s.parallel(i)
