"""tile(i, j, i_factor, j_factor)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.schedule import ScheduleError


def test_tiles(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    loops = s.tile("i", "j", 3, 2)
    assert s.loops("C")[:4] == loops
    assert [loop.name for loop in loops] == ["i_0", "j_0", "i_1", "j_1"]
    assert str(s.trace).endswith("l2, l3, l4, l5 = s.tile(l0, l1, 3, 2)")
    p.check(s)


def test_a_refusal_leaves_the_schedule_alone(program: Any) -> None:
    s = program("matmul").schedule()
    before = s.function
    with pytest.raises(ScheduleError, match="cannot split loop j by None, 0"):
        s.tile("i", "j", 3, 0)
    assert s.function is before and len(s.trace) == 0
