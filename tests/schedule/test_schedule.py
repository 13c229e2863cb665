"""The schedule itself: finding, copying, asking, handles that are gone"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import parse_function
from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.primitives import primitive_names
from tilewright.support.errors import UserError


def test_finding(program: Any) -> None:
    s = program("row_max").schedule()
    assert [b.name for b in s.blocks()] == ["M", "D"]
    assert [b.name for b in s.consumers("M")] == ["D"]
    assert [b.name for b in s.producers("D")] == ["M"]
    assert [loop.name for loop in s.all_loops()] == ["i", "k", "i", "j"]
    assert s.loop("k") == s.loops("M")[1]


def test_not_found(program: Any) -> None:
    s = program("row_max").schedule()
    with pytest.raises(ScheduleError, match=r"there is no block N\n  remedy: .*M"):
        s.block("N")
    with pytest.raises(UserError, match="there is no loop z"):
        s.split("z", 2)
    with pytest.raises(UserError, match="2 loops are named i"):
        s.split("i", 2)


def test_handles_that_are_gone(program: Any) -> None:
    s = program("matmul").schedule()
    i = s.loop("i")
    s.split(i, 2)
    with pytest.raises(ScheduleError, match="loop i is gone: split at step 1 consumed it"):
        s.parallel(i)
    other = program("matmul").schedule().loop("j")
    with pytest.raises(ScheduleError, match="loop j is gone: it is of another function"):
        s.parallel(other)


def test_copies_are_independent(program: Any) -> None:
    s = program("matmul").schedule()
    i, j, _ = s.loops("C")
    twin = s.copy()
    s.split(i, 2)
    twin.parallel(i)
    assert len(s.loops("C")) == 4 and len(twin.loops("C")) == 3
    assert len(twin.trace) == 2
    s.parallel(j)
    assert twin.loop_of(j).kind == "serial"


def test_asking_first(program: Any) -> None:
    s = program("matmul").schedule()
    before = s.function
    assert s.can("split", "i", 4)
    answer = s.can("parallel", "k")
    assert not answer and "feeds the reduce iterator" in str(answer)
    assert s.function is before and len(s.trace) == 0
    with pytest.raises(UserError, match="there is no primitive 'slice'"):
        s.can("slice", "i")


def test_every_primitive_has_a_method_and_an_example() -> None:
    from tilewright.schedule.primitives import find_primitive

    for name in primitive_names():
        method = getattr(Schedule, name)
        assert method.__doc__, name
        assert find_primitive(name).__doc__, name


def test_a_refusal_shows_the_culprit() -> None:
    s = Schedule(parse_function("def f(A: f32[8]):\n    for i in range(8):\n        A[i] = 1.0\n"))
    with pytest.raises(ScheduleError) as caught:
        s.parallel("i")
    assert "A[i] = 1.0\n        ^^^^^^^^^^" in str(caught.value)
