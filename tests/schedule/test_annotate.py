"""annotate, unannotate"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.schedule import ScheduleError


def test_notes_come_and_go(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    s.annotate(s.loop("k"), "prefetch", {"distance": 2})
    s.annotate("C", "hot")
    assert s.loop_of("k").annotations == {"prefetch": {"distance": 2}}
    assert s.block_of("C").annotations == {"hot": True}
    p.check(s)
    s.unannotate("C", "hot")
    assert not s.block_of("C").annotations
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match="cannot be kept in a trace"):
        s.annotate("C", "key", object())
    with pytest.raises(ScheduleError, match="cannot take annotation 'colour' off block C"):
        s.unannotate("C", "colour")
    with pytest.raises(ScheduleError, match="a key is a text that is not empty"):
        s.annotate("C", "", 1)
