"""storage_align(block, buffer, axis, factor, offset) and set_scope(block, buffer, scope)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.schedule import ScheduleError


def test_strides_of_an_axis(program: Any) -> None:
    p = program("chain", k=30)
    s = p.schedule()
    s.storage_align("A1", "A1", 0, 32)
    assert "A1 = alloc(f32[7, 30, strides(32, 1)])" in str(s)
    s.storage_align("A1", "A1", -2, 32, 4)
    assert "A1 = alloc(f32[7, 30, strides(36, 1)])" in str(s)
    p.check(s)


def test_outer_axes_follow(program: Any) -> None:
    p = program("chain", m=8)
    s = p.schedule()
    s.transform_layout("C", "C", lambda i, j: (j // 4, i, j % 4))
    s.storage_align("C", "C", 1, 5)
    assert "C = alloc(f32[2, 7, 4, strides(35, 5, 1)])" in str(s)
    p.check(s)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("A1", 1, 8), "elements of the last axis lie side by side"),
        (("A1", 2, 8), "A1 has 2 axes"),
        (("A1", 0, 0), "0 is no factor"),
        (("A1", 0, 4, 4), "the offset 4 is not below the factor"),
        (("A", 0, 4), "A is a parameter of the function"),
    ],
)
def test_alignments_that_make_no_sense(program: Any, args: Any, message: str) -> None:
    s = program("chain").schedule()
    with pytest.raises(ScheduleError, match=f"cannot align axis .*{message}"):
        s.storage_align("A1", *args)


def test_scopes(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.set_scope("C", "C", "local")
    assert 'C = alloc(f32[7, 5], scope="local")' in str(s)
    p.check(s)
    with pytest.raises(ScheduleError, match="into scope 'heap': there is no scope 'heap'"):
        s.set_scope("C", "C", "heap")
    with pytest.raises(ScheduleError, match="B is a parameter of the function"):
        s.set_scope("C", "B", "local")
