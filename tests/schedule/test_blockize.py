"""blockize(loop)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.schedule import ScheduleError


def _tiled(p: Any) -> tuple[Any, Any]:
    s = p.schedule()
    i0, j0, i1, j1 = s.tile("i", "j", 2, 3)
    k0, k1 = s.split("k", 3)
    s.reorder(i0, j0, k0, i1, j1, k1)
    return s, i1


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=8, m=6)
    s, i1 = _tiled(p)
    before = str(s)
    assert s.blockize(i1).name == "C_o"
    golden(f"{before}-->\n{s}", "schedule/blockize")
    p.check(s)


def test_the_tile_moves_as_a_whole(program: Any) -> None:
    p = program("matmul", n=8, m=6)
    s, i1 = _tiled(p)
    s.blockize(i1)
    i0, j0, k0 = s.loops("C_o")
    s.reorder(k0, i0, j0)
    s.decompose_reduction("C_o", k0)
    s.parallel(i0)
    assert [loop.name for loop in s.loops("C")] == ["i_1", "j_1", "k_1"]
    p.check(s)


def test_the_whole_reduction_inside_keeps_its_init(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    s.blockize("j")
    assert s.block_of("C").init is not None and s.block_of("C_o").init is None
    p.check(s)


def test_uneven_tiles_are_refused(program: Any) -> None:
    s, i1 = _tiled(program("matmul", n=7, m=6))
    with pytest.raises(ScheduleError, match="depends on loops inside and outside"):
        s.blockize(i1)


def test_loops_that_cut_an_iterator_badly_are_refused(program: Any) -> None:
    s = program("matmul", n=8).schedule()
    i0, i1 = s.split("i", 4)
    s.reorder(i1, i0)
    with pytest.raises(ScheduleError, match="is not a multiple of 5 outside"):
        s.blockize(i0)


def test_one_block_only(program: Any) -> None:
    s = program("matmul").schedule()
    s.decompose_reduction("C", s.loops("C")[2])
    with pytest.raises(ScheduleError, match="it holds 2 blocks"):
        s.blockize("i")
