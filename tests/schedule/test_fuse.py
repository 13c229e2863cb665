"""fuse(*loops)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, parse_function
from tilewright.schedule import Schedule, ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("elementwise")
    s = p.schedule()
    fused = s.fuse(*s.loops("B"))
    assert fused.name == "i_j"
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/fuse")
    p.check(s)


@pytest.mark.parametrize("which", [(0, 1), (1, 2), (0, 1, 2)])
def test_space_and_reduction_fuse(program: Any, which: tuple[int, ...]) -> None:
    p = program("matmul")
    s = p.schedule()
    loops = s.loops("C")
    s.fuse(*(loops[w] for w in which))
    p.check(s)


def test_fusing_what_was_split_gives_the_loop_back(program: Any) -> None:
    p = program("matmul", n=8)
    s = p.schedule()
    s.fuse(*s.split("i", 4))
    assert "vi=spatial(8, i_0_i_1)" in str(s)
    p.check(s)


def test_names_stay_short(program: Any) -> None:
    p = program("elementwise")
    s = p.schedule()
    for _ in range(8):
        s.fuse(*s.split(s.loops("B")[0], 3))
    assert len(s.loops("B")[0].name) <= 24
    p.check(s)


def test_loops_of_one_kind_fuse(program: Any) -> None:
    p = program("elementwise")
    s = p.schedule()
    i0, i1 = s.split("i", 5)
    s.unroll(i0)
    s.unroll(i1)
    assert s.loop_of(s.fuse(i0, i1)).kind == "unrolled"
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    i, j, k = s.loops("C")
    with pytest.raises(ScheduleError, match="cannot fuse i: there is nothing to fuse"):
        s.fuse(i)
    with pytest.raises(ScheduleError, match="loop k is not directly inside loop i"):
        s.fuse(i, k)
    with pytest.raises(ScheduleError, match="loop i is not directly inside loop j"):
        s.fuse(j, i)
    s.annotate(i, "note")
    with pytest.raises(ScheduleError, match="their annotations differ"):
        s.fuse(i, j)
    s.unannotate(i, "note")
    s.parallel(i)
    with pytest.raises(ScheduleError, match="loop i is parallel, loop j is serial"):
        s.fuse(i, j)


def test_triangular_loops_stay_apart() -> None:
    text = (
        "def f(A: f32[4, 4]):\n    for i in range(4):\n        for j in range(i + 1):\n"
        "            A[i, j] = 1.0\n"
    )
    s = Schedule(parse_function(text))
    with pytest.raises(ScheduleError, match="depends on loop i"):
        s.fuse("i", "j")
    with pytest.raises(ScheduleError, match="depends on loop i"):
        s.reorder("j", "i")
