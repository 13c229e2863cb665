"""loop_partition(loop, *points)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text
from tilewright.schedule import ScheduleError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=10, m=3, k=4)
    s = p.schedule()
    i0, _ = s.split("i", 4)
    body, edge = s.loop_partition(i0, 2)
    assert (body.name, edge.name) == ("i_0_0", "i_0_1")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/loop_partition")
    p.check(s)


@pytest.mark.parametrize("points", [(1,), (2, 3), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("loop", ["i", "j", "k"])
def test_parts_add_up(program: Any, loop: str, points: tuple[int, ...]) -> None:
    p = program("matmul", n=6, m=6)
    s = p.schedule()
    s.loop_partition(loop, *points)
    assert len(s.blocks()) == len(points) + 1
    p.check(s)


def test_the_inner_part_of_a_reduction(program: Any) -> None:
    p = program("matmul", k=7)
    s = p.schedule()
    _, inner = s.split("k", 4)
    s.loop_partition(inner, 3)
    p.check(s)
    s.decompose_reduction("C", s.loops("C")[2])
    p.check(s)


def test_symbolic_extents(program: Any) -> None:
    for rows in (2, 4, 9):
        p = program("matmul", n=rows, symbolic=True)
        s = p.schedule()
        s.loop_partition("i", 4)
        p.check(s)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), "cannot partition loop i at no point: there is nowhere to cut"),
        ((0,), "0 does not follow 0"),
        ((3, 2), "2 does not follow 3"),
        ((7,), "the loop ends at 7"),
    ],
)
def test_refusals(program: Any, points: tuple[int, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        program("matmul").schedule().loop_partition("i", *points)


def test_loops_that_mix_reductions_are_refused(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    fused = s.fuse("j", "k")
    with pytest.raises(
        ScheduleError, match="reductions would begin in one part and end in another"
    ):
        s.loop_partition(fused, 8)
    s.decompose_reduction("C", fused)
    s.loop_partition(fused, 8)
    p.check(s)
