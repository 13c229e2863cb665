"""split(loop, *factors)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=10)
    s = p.schedule()
    i, _, k = s.loops("C")
    outer, inner = s.split(i, None, 4)
    s.split(k, 3)
    assert (outer.name, inner.name) == ("i_0", "i_1")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/split")


@pytest.mark.parametrize("factors", [(1,), (7,), (3,), (None, 4), (2, None, 2), (3, 3), (9, 1, 2)])
def test_any_factors_keep_the_result(program: Any, factors: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    for loop in s.loops("C"):
        s.split(loop, *factors)
    p.check(s)


def test_symbolic_extents_are_guarded(program: Any) -> None:
    p = program("matmul", n=9, symbolic=True)
    s = p.schedule()
    s.split(s.loops("C")[0], 4)
    assert "range((n + 3) // 4)" in str(s) and "i_0 * 4 + i_1 < n" in str(s)
    p.check(s)


def test_dividing_factors_need_no_predicate(program: Any) -> None:
    s = program("matmul", n=12).schedule()
    s.split(s.split(s.loops("C")[0], 4)[1], 2)
    assert "where" not in str(s)


def test_statements_outside_of_blocks_get_an_if() -> None:
    text = "def f(A: f32[10]):\n    for i in range(10):\n        A[i] = 1.0\n"
    s = Schedule(parse_function(text))
    s.split("i", 4)
    assert "if i_0 * 4 + i_1 < 10:" in str(s)
    assert str(s.trace).startswith("l0 = s.all_loops()[0]")
    assert str(s.trace.replay(parse_function(text))) == str(s)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ((0,), "cannot split loop i by None, 0: 0 is no factor"),
        ((None, None), "more than one factor is None"),
        ((2, 3), "together they give 6 iterations, the loop has 7"),
        ((), "there is no factor"),
    ],
)
def test_factors_that_make_no_sense(program: Any, factors: Any, message: str) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match=message) as caught:
        s.split("i", *factors)
    assert "remedy" in str(caught.value) and "^^^" in str(caught.value)


def test_only_plain_loops_are_split(program: Any) -> None:
    s = program("matmul").schedule()
    s.annotate(s.loop("i"), "hot")
    s.parallel("j")
    with pytest.raises(ScheduleError, match="carries the annotations hot"):
        s.split("i", 2)
    with pytest.raises(ScheduleError, match="the loop is parallel"):
        s.split("j", 2)
