"""decompose_reduction(block, loop)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text
from tilewright.schedule import ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=10)
    s = p.schedule()
    i0, i1 = s.split("i", 4)
    _, k1 = s.split("k", 4)
    s.reorder(i0, k1, i1)
    before = str(s)
    init = s.decompose_reduction("C", i0)
    assert init.name == "C_init"
    golden(f"{before}-->\n{s}", "schedule/decompose_reduction")
    p.check(s)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_at_every_loop(program: Any, at: int) -> None:
    p = program("matmul")
    s = p.schedule()
    s.decompose_reduction("C", s.loops("C")[at])
    p.check(s)


def test_with_the_reduction_outside(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    i, j, k = s.loops("C")
    s.reorder(k, i, j)
    s.decompose_reduction("C", k)
    s.parallel(i)
    s.vectorize(s.loops("C_init")[1])
    p.check(s)


def test_after_fusing_space_with_the_reduction(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    s.split(s.fuse("j", "k"), 4)
    s.decompose_reduction("C", s.loops("C")[1])
    p.check(s)


def test_several_values_at_once(program: Any) -> None:
    p = program("argmax")
    s = p.schedule()
    s.decompose_reduction("R", s.loops("R")[1])
    p.check(s)


def test_the_parts_run_side_by_side(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    s.decompose_reduction("C", s.loops("C")[1])
    s.parallel("i")
    p.check(s)


def test_refusals(program: Any) -> None:
    p = program("row_max")
    s = p.schedule()
    with pytest.raises(ScheduleError, match="block D is no reduction with an init"):
        s.decompose_reduction("D", s.loops("D")[0])
    with pytest.raises(ScheduleError, match="loop i is not around block M"):
        s.decompose_reduction("M", s.loops("D")[0])
    i, k = s.loops("M")
    s.reorder(k, i)
    with pytest.raises(ScheduleError, match="loop k outside of it reduces too"):
        s.decompose_reduction("M", i)
    s.decompose_reduction("M", k)
    with pytest.raises(ScheduleError, match="block M is no reduction with an init"):
        s.decompose_reduction("M", k)
    assert "M_init" in function_text(s.function)
