"""peel(loop, size)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text
from tilewright.schedule import ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=10, m=3, k=4)
    s = p.schedule()
    whole, rest = s.peel("i", 4)
    assert (whole.name, rest.name) == ("i_0", "i_1")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/peel")
    p.check(s)


@pytest.mark.parametrize("rows", [1, 4, 7, 8])
def test_whole_tiles_ask_nothing_whatever_the_extent(program: Any, rows: int) -> None:
    p = program("matmul", n=rows, symbolic=True)
    s = p.schedule()
    whole, _ = s.peel("i", 4)
    s.split(whole, 4)
    assert "where" not in str(s)
    p.check(s)


@pytest.mark.parametrize("loop", ["i", "j", "k"])
def test_parts_add_up(program: Any, loop: str) -> None:
    p = program("matmul", n=7, m=6, k=9)
    s = p.schedule()
    s.peel(loop, 4)
    assert len(s.blocks()) == 2
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match="1 is no number of iterations"):
        s.peel("i", 1)
    for size in (8, 16):
        with pytest.raises(ScheduleError, match="one part would be empty"):
            program("matmul", n=8).schedule().peel("i", size)
    s.parallel("i")
    with pytest.raises(ScheduleError, match="cannot peel loop i"):
        s.peel("i", 4)
