"""merge(first, second)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text, interpret
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tensor import te


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("row_max", n=5, m=3)
    s = p.schedule()
    merged = s.merge(s.loops("M")[0], s.loops("D")[0])
    assert s.loops("M")[0] == s.loops("D")[0] == merged
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/merge")
    p.check(s)


def test_loops_in_merged_loops(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    for first, second in zip(s.loops("D"), s.loops("E"), strict=True):
        s.merge(first, second)
    s.parallel(s.loops("E")[0])
    assert s.loops("D") == s.loops("E")
    p.check(s)


def _steps() -> Any:
    """A scan of two blocks: what a step makes, and the state that is made of it."""
    X = te.placeholder((5, 4), name="X")
    state = te.placeholder((5, 4), name="state")
    k = te.reduce_axis(4, name="k")
    total = te.compute((5, 4), lambda t, j: te.sum(state[t - 1, k] * X[j, k], axis=k), name="total")
    update = te.compute((5, 4), lambda t, j: total[t, j] + X[t, j], name="update")
    first = te.compute((1, 4), lambda _, j: X[0, j], name="first")
    return te.function([X], [te.scan(first, update, state, name="S")], name="steps")


def test_what_a_step_writes_is_not_what_it_reads() -> None:
    function, x = _steps(), np.arange(20, dtype="f4").reshape(5, 4) % 3 - 1
    s = Schedule(function)
    s.parallel(s.merge(s.loops("total")[1], s.loops("update")[1]))
    results = [np.zeros((5, 4), "f4") for _ in range(2)]
    for f, result in zip((function, s.function), results, strict=True):
        interpret(f, x, result)
    assert np.array_equal(results[0], results[1]) and results[0].any()


def test_loops_of_different_extents_are_refused(program: Any) -> None:
    s = program("row_max").schedule()
    outer, _ = s.split(s.loops("D")[0], 3)
    with pytest.raises(ScheduleError, match="one runs to 5, the other to 2"):
        s.merge(s.loops("M")[0], outer)


def test_loops_apart_are_refused(program: Any) -> None:
    s = program("chain", n=7, k=7).schedule()
    with pytest.raises(ScheduleError, match="does not stand right behind"):
        s.merge(s.loops("A1")[0], s.loops("D")[0])
    with pytest.raises(ScheduleError, match="does not stand right behind"):
        s.merge(s.loops("D")[0], s.loops("C")[0])


@pytest.mark.parametrize("place", [lambda i: 7 - i, lambda i: i // 2, lambda i: i * 0])
def test_what_comes_from_another_iteration_is_refused(place: Any) -> None:
    A = te.placeholder((8,), name="A")
    T = te.compute((8,), lambda i: A[i] + 1.0, name="T")
    B = te.compute((8,), lambda i: T[place(i)] * 2.0, name="B")
    s = Schedule(te.function([A], [B], name="turned"))
    with pytest.raises(ScheduleError, match="T may be handed from one iteration of loop i"):
        s.merge(s.loops("T")[0], s.loops("B")[0])
