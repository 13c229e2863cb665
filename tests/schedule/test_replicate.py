"""replicate(block, count, readers)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text
from tilewright.schedule import ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("row_max", n=5, m=8)
    s = p.schedule()
    (loop,) = s.replicate("M", 4, {"D": lambda _, j: (j // 2,)})
    assert loop in s.loops("M")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/replicate")
    p.check(s)


def test_all_that_writes_a_buffer_writes_copies(program: Any) -> None:
    p = program("row_max", n=5, m=8)
    s = p.schedule()
    s.decompose_reduction("M", s.loops("M")[1])
    assert len(s.replicate("M", 3)) == 2
    assert "M[vi, 0]" in str(s), "the first copy is read where nothing else is said"
    p.check(s)


def test_copies_that_are_none_are_refused(program: Any) -> None:
    s = program("row_max", n=5, m=8).schedule()
    with pytest.raises(ScheduleError, match="block D may read a copy that is none"):
        s.replicate("M", 4, {"D": lambda _, j: (j,)})


def test_outputs_are_not_replicated(program: Any) -> None:
    with pytest.raises(ScheduleError, match="cannot replicate what block D writes"):
        program("row_max").schedule().replicate("D", 2)
