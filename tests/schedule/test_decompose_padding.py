"""decompose_padding(block, loop)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text
from tilewright.schedule import ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("window")
    s = p.schedule()
    assert s.decompose_padding("P", s.loops("P")[0]).name == "P_pad"
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/decompose_padding")
    p.check(s)


@pytest.mark.parametrize("depth", [0, 1])
def test_at_any_loop_of_a_split_one(program: Any, depth: int) -> None:
    p = program("window")
    s = p.schedule()
    s.split(s.loops("P")[0], 4)
    s.decompose_padding("P", s.loops("P")[depth])
    p.check(s)


def test_padding_that_pad_made(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    padded = s.pad("C", [4, 4, 4])[0]
    s.decompose_padding(padded, s.loops(padded)[1])
    assert len(s.loops("A_pad_pad")) == 2
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("window").schedule()
    with pytest.raises(ScheduleError, match="block D does not store `value if inside else"):
        s.decompose_padding("D", s.loops("D")[0])
    with pytest.raises(ScheduleError, match="block S runs over the reduce iterator"):
        s.decompose_padding("S", s.loops("S")[0])
    with pytest.raises(ScheduleError, match="loop i is not around block P"):
        s.decompose_padding("P", s.loops("S")[0])
    s.reverse_compute_at("D", s.loops("S")[0])
    s.compute_at("P", s.loops("S")[0])
    with pytest.raises(ScheduleError, match="block S is in loop i too"):
        s.decompose_padding("P", s.loops("S")[0])
