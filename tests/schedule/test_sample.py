"""sample_tile, sample_choice"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from tilewright.schedule import ScheduleError


def test_sampled_factors_split_the_loop(program: Any) -> None:
    p = program("matmul", n=12)
    s = p.schedule()
    factors = s.sample_tile("i", 3, max_inner=4)
    assert math.prod(factors) == 12 and factors[-1] <= 4
    s.split("i", *factors)
    s.unroll(s.loops("C")[2])
    p.check(s)


def test_a_decision_can_be_made_differently(program: Any) -> None:
    p = program("matmul", n=12)
    s = p.schedule()
    s.split("i", *s.sample_tile("i", 2))
    (number,) = s.trace.decisions
    for decision in ([1, 12], [4, 3], [12, 1]):
        other = s.trace.with_decision(number, decision).replay(p.function)
        extents = [int(other.loop_of(loop).extent.value) for loop in other.loops("C")[:2]]  # type: ignore[attr-defined]
        assert extents == decision
        p.check(other)


def test_every_factorisation_is_drawn(program: Any) -> None:
    s = program("matmul", n=12).schedule()
    drawn = Counter(tuple(s.sample_tile("i", 2)) for _ in range(300))
    assert set(drawn) == {(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)}
    assert min(drawn.values()) > 20


def test_uneven_factors_cover_the_loop(program: Any) -> None:
    p = program("matmul", n=11)
    for _ in range(10):
        s = p.schedule()
        factors = s.sample_tile("i", 3, max_inner=5, perfect=False)
        assert math.prod(factors) >= 11 and factors[-1] <= 5
        s.split("i", *factors)
        p.check(s)


def test_choices(program: Any) -> None:
    p = program("elementwise")
    s = p.schedule()
    drawn = {s.sample_choice([1, 2, 5], weights=[1, 0, 1]) for _ in range(40)}
    assert drawn == {1, 5}
    s.split("i", s.sample_choice([2, 4], decision=1))
    assert "range(4)" in str(s)
    p.check(s)


def test_copies_draw_the_same(program: Any) -> None:
    s = program("matmul", n=64).schedule()
    assert s.copy().sample_tile("i", 4) == s.sample_tile("i", 4)


def test_refusals(program: Any) -> None:
    s = program("matmul", n=12, symbolic=True).schedule()
    with pytest.raises(ScheduleError, match="its extent n is not known yet"):
        s.sample_tile("i", 2)
    with pytest.raises(ScheduleError, match="a tile has at least two parts"):
        s.sample_tile("k", 1)
    with pytest.raises(ScheduleError, match=r"the decision \[4, 3\] does not fit its extent 6"):
        s.sample_tile("k", 2, decision=[4, 3])
    with pytest.raises(ScheduleError, match="the decision 3 is no position among them"):
        s.sample_choice([1, 2], decision=3)
    with pytest.raises(ScheduleError, match="candidates are whole numbers"):
        s.sample_choice([])
    with pytest.raises(ScheduleError, match="do not fit them"):
        s.sample_choice([1, 2], weights=[1.0])
