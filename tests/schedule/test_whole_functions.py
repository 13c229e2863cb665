"""Primitives of whole functions: blocks that never run go, results bypass the caches"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import Function, function_text, same_function
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.tensor import te


def empty() -> Function:
    """A function one of whose blocks runs over no element."""
    A = te.placeholder((0, 4), name="A")
    T = te.compute((0, 4), lambda i, j: A[i, j] + 1.0, name="T")
    B = te.compute((4,), lambda j: te.cast(j, "float32"), name="B")
    return te.function([A], [T, B], name="f")


def test_blocks_that_never_run_go() -> None:
    s = Schedule(empty())
    s.remove_empty()
    assert [b.name for b in s.blocks()] == ["B"]
    assert "range(0)" not in function_text(s.function)
    again = Trace.from_json(s.trace.to_json()).replay(empty())
    assert same_function(again.function, s.function)


def test_results_bypass_the_caches(program: Any) -> None:
    p = program("elementwise")
    s = p.schedule()
    s.stream([1])
    assert s.function.attrs["streams"] == [1]
    p.check(s)
    again = Trace.from_json(s.trace.to_json()).replay(p.function)
    assert again.function.attrs == s.function.attrs


@pytest.mark.parametrize(
    ("number", "message"),
    [(0, "A is read"), (2, "there are 2 buffers, number 2 is none")],
)
def test_what_is_read_cannot_bypass_them(program: Any, number: int, message: str) -> None:
    s = program("elementwise").schedule()
    with pytest.raises(ScheduleError, match=message):
        s.stream([number])
