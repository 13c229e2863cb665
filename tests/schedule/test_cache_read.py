"""cache_read(block, buffer, scope)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text
from tilewright.schedule import ScheduleError
from tilewright.support.errors import UserError


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    assert s.cache_read("C", "B", "local").name == "B_local"
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/cache_read")
    p.check(s)


@pytest.mark.parametrize("buffer", [0, "A", 1, "B"])
def test_by_name_or_number(program: Any, buffer: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    name = s.cache_read("C", buffer).name
    assert name == ("A_global" if buffer in (0, "A") else "B_global")
    p.check(s)


def test_only_this_block_reads_the_copy(program: Any) -> None:
    p = program("diamond")
    s = p.schedule()
    s.cache_read("W", "T")
    assert [b.name for b in s.producers("W")] == ["UV", "T_global"]
    assert [b.name for b in s.producers("UV")] == ["T"]
    p.check(s)


def test_twice_gives_two_copies(program: Any) -> None:
    p = program("matmul")
    s = p.schedule()
    s.cache_read("C", "A", "shared")
    s.cache_read("C", "A_shared", "local")
    assert [b.name for b in s.blocks()] == ["A_shared", "A_shared_local", "C"]
    p.check(s)


def test_in_the_loop_that_writes_it(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.compute_at("A1", s.loops("C")[0])
    s.cache_read("C", "A1")
    assert s.loops("A1_global")[0] == s.loops("C")[0]
    p.check(s)


def test_a_copy_of_guarded_reads_stays_inside(program: Any) -> None:
    p = program("window")
    s = p.schedule()
    s.cache_read("P", "A")
    assert "vax0=spatial(11, ax0)" in str(s)
    p.check(s)


def test_refusals(program: Any) -> None:
    s = program("matmul").schedule()
    with pytest.raises(ScheduleError, match=r"there is no scope 'locl'.*\n.*did you mean local"):
        s.cache_read("C", "A", "locl")
    with pytest.raises(UserError, match="block C reads no buffer X"):
        s.cache_read("C", "X")
    with pytest.raises(UserError, match="block C reads 2 buffers, number 2 is none"):
        s.cache_read("C", 2)
    s.blockize(s.loops("C")[2])
    with pytest.raises(ScheduleError, match="block C stands in block"):
        s.cache_read("C", "A")
