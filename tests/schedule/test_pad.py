"""pad(block, factors)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text, interpret
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tensor import te


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    names = [b.name for b in s.pad("C", [4, 4, 4])]
    assert names == ["A_pad", "B_pad", "C_crop"]
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/pad")
    p.check(s)


@pytest.mark.parametrize("factors", [(4, 1, 1), (1, 1, 4), (1, 3, 4), (8, 8, 8)])
def test_any_factors_keep_the_result(program: Any, factors: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    s.pad("C", factors)
    p.check(s)


def test_what_was_padded_can_be_inlined(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    *pads, crop = s.pad("C", [4, 4, 4])
    for block in pads:
        s.compute_inline(block)
    s.compute_inline(crop)
    p.check(s)


def test_padding_twice(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    padded, *_ = s.pad("C", [4, 1, 1])
    s.pad(padded, [3, 1])
    p.check(s)


def test_symbolic_extents(program: Any) -> None:
    p = program("matmul", symbolic=True)
    s = p.schedule()
    s.pad("C", [4, 1, 1])
    assert "A_pad = alloc(f32[(n + 3) // 4 * 4, 6])" in str(s)
    p.check(s)


def test_one_buffer_read_at_two_places() -> None:
    A = te.placeholder((5, 3), name="A")
    k = te.reduce_axis(3, name="k")
    G = te.compute((5, 5), lambda i, j: te.sum(A[i, k] * A[j, k], axis=k), name="G")
    s = Schedule(te.function([A], [G]))
    assert [b.name for b in s.pad("G", [2, 4, 2])] == ["A_pad", "A_pad_1", "G_crop"]
    a, g = np.arange(15, dtype="float32").reshape(5, 3), np.zeros((5, 5), "float32")
    interpret(s.function, a, g)
    np.testing.assert_array_equal(g, a @ a.T)


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match=r"block C to \[4\]: block C has 3 iterators"):
        s.pad("C", [4])
    with pytest.raises(ScheduleError, match="no factor is below 1"):
        s.pad("C", [4, 0, 1])
    with pytest.raises(ScheduleError, match="the factors divide all extents already"):
        s.pad("C", [7, 5, 2])
    s.split(s.loops("C")[0], 4)
    with pytest.raises(ScheduleError, match="are not one for each iterator"):
        s.pad("C", [4, 4, 4])


def test_reductions_that_zeros_would_change(program: Any) -> None:
    s = program("row_max").schedule()
    with pytest.raises(ScheduleError, match="does not sum up products that are zero where vk"):
        s.pad("M", [1, 4])
    s.pad("M", [4, 1])
    # One factor is not padded along k: where it is infinite, 0 times it would not be 0.
    A, B = te.placeholder((5,), name="A"), te.placeholder((1,), name="B")
    k = te.reduce_axis(5, name="k")
    C = te.compute((1,), lambda i: te.sum(A[k] * B[i], axis=k), name="C")
    s = Schedule(te.function([A, B], [C]))
    with pytest.raises(ScheduleError, match="does not sum up products"):
        s.pad("C", [1, 4])


def test_indices_that_are_sums_are_refused(program: Any) -> None:
    s = program("window").schedule()
    with pytest.raises(ScheduleError, match="block S touches P at `vi \\+ vr`"):
        s.pad("S", [4, 1])
