"""transform_layout(block, buffer, layout)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.arith import AffineMap
from tilewright.ir import function_text, interpret
from tilewright.schedule import ScheduleError, Trace
from tilewright.support.errors import UserError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("chain", m=8)
    s = p.schedule()
    s.transform_layout("C", "C", lambda i, j: (j // 4, i, j % 4))
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/transform_layout")
    p.check(s)


@pytest.mark.parametrize(
    "layout",
    [
        lambda i, j: (j, i),
        lambda i, j: i * 6 + j,
        lambda i, j: (i, j // 3, j % 3),
        lambda i, j: (i // 4, j, i % 4),
        lambda i, j: (i + 2, j),
        "(a, b) -> (b % 2, a, b // 2)",
        AffineMap.of(lambda i, j: (j, i), 2),
    ],
)
def test_any_layout_keeps_the_result(program: Any, layout: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.transform_layout("C", "A1", layout)
    p.check(s)
    s.compute_at("A1", s.loops("C")[0])
    p.check(s)


def test_padding_is_filled(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.transform_layout("A1", "A1", lambda i, j: (i // 4, j, i % 4), pad_value=0.5)
    assert [b.name for b in s.blocks()][:2] == ["A1_pad", "A1"]
    assert "where(ax0 * 4 + ax2 >= 7)" in str(s)
    p.check(s)


def test_parameters_change_the_signature(program: Any) -> None:
    p = program("matmul", k=8)
    s = p.schedule()
    s.transform_layout("C", "B", lambda i, j: (i // 4, j, i % 4))
    s.transform_layout("C", "C", lambda i, j: (j, i // 4, i % 4), pad_value=9.0)
    a, b = p.inputs
    out = np.zeros((5, 2, 4), "float32")
    interpret(s.function, a, b.reshape(2, 4, 5).transpose(0, 2, 1), out)
    np.testing.assert_array_equal(out.reshape(5, 8)[:, :7].T, p.expected[0])
    np.testing.assert_array_equal(out.reshape(5, 8)[:, 7], 9.0)
    again = Trace.from_json(s.trace.to_json()).replay(p.function)
    assert str(again) == str(s)


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match="go to different places"):
        s.transform_layout("C", "C", lambda i, j: i)
    with pytest.raises(ScheduleError, match=r"cannot lay out A by .*: it takes 1 indices, A has"):
        s.transform_layout("C", "A", "(i) -> (i)")
    with pytest.raises(ScheduleError, match=r"new shape \(2, 5, 4\) has more elements than C"):
        s.transform_layout("C", "C", lambda i, j: (i // 4, j, i % 4))
    with pytest.raises(ScheduleError, match="A is an input, so that nothing here can fill"):
        s.transform_layout("C", "A", lambda i, j: (i // 4, j, i % 4), pad_value=0.0)
    s = program("chain").schedule()
    s.storage_align("C", "C", 0, 8)
    with pytest.raises(ScheduleError, match="C has strides or an offset"):
        s.transform_layout("C", "C", lambda i, j: (j, i))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("i, j", "it has no `->`"),
        ("(i, i) -> (i)", "not a list of different names"),
        ("(i, j) -> (k)", "k is none of its indices"),
        ("(i, j) -> (i / 2)", "is no index"),
        ("(i, j) -> (i, 0.5)", "0.5 is no whole number"),
        ("(i, j) -> (i, f(j))", "is no index"),
        ("(i, j) -> (i,", "was never closed"),
    ],
)
def test_texts_that_are_no_layouts(program: Any, text: str, reason: str) -> None:
    s = program("matmul").schedule()
    with pytest.raises(UserError, match=f"cannot read the layout .*{reason}"):
        s.transform_layout("C", "C", text)
