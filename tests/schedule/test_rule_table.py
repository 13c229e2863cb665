"""How rules are tried: what refuses leaves plain loops, what is at fault says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.ir import Function
from tilewright.schedule import RefusedError, Schedule, ScheduleError, error, function_of
from tilewright.schedule.rules import Choices, Rule, apply_table
from tilewright.schedule.rules.products.contraction import CONTRACTION
from tilewright.schedule.rules.table import CPU_RULES, Stage
from tilewright.support.errors import InternalError, UserError

TARGET = tw.Target.of("llvm -mcpu=skylake-avx512 -num-cores=2")


def product() -> Function:
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    return te.function([a, b], [ops.matmul(a, b, name="C")], name="f")


def scheduled(rule: Rule[Any, Any]) -> Schedule:
    s = Schedule(product())
    apply_table(s, (Stage("blocks", (rule,)), CPU_RULES[-1]), TARGET, Choices())
    return s


def test_schedules_tell_which_rule_was_refused() -> None:
    def refused(s: Schedule, name: str, *_: Any) -> None:
        loops = s.loops(name)
        s.parallel(loops[0])
        s.vectorize(loops[-1])  # which reduces

    s = scheduled(replace(CONTRACTION, apply=refused))
    assert len(s.trace) == 0 and s.loop_of("i").kind == "serial", "all of the rule is undone"
    (told,) = function_of(s).attrs["refused"]
    assert told.startswith("contraction of C: cannot vectorize loop k")
    assert told in str(function_of(s))


def test_a_rule_may_be_refused_while_it_looks() -> None:
    def trying(s: Schedule, name: str, *_: Any) -> None:
        s.copy().vectorize(s.loops(name)[-1])  # which reduces

    s = scheduled(replace(CONTRACTION, match=trying))
    assert [(d.rule, d.block) for d in s.declined] == [("contraction", "C")]
    assert "cannot vectorize loop k" in s.declined[0].reason


def test_a_rule_that_names_what_is_not_there_is_at_fault() -> None:
    def faulty(s: Schedule, name: str, *_: Any) -> None:
        first = s.loops(name)[0]
        s.split(first, 4)
        s.parallel(first)  # which is gone

    message = r"rule contraction of C is at fault: loop i is gone"
    with pytest.raises(InternalError, match=message):
        scheduled(replace(CONTRACTION, apply=faulty))
    with pytest.raises(InternalError, match=message):
        scheduled(replace(CONTRACTION, match=lambda s, name, _: faulty(s.copy(), name)))


def test_reasons_are_written_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[Function]()
    listing = error.listing
    monkeypatch.setattr(error, "listing", lambda f, *at: shown.append(f) or listing(f, *at))
    s = Schedule(product())
    refusal = s.can("parallel", s.loops("C")[-1])
    assert not refusal and not shown
    assert not isinstance(refusal, bool)
    assert "feeds the reduce iterator" in refusal.reason and shown == [s.function]


def test_only_primitives_that_do_not_fit_are_refusals() -> None:
    s = Schedule(product())
    assert not s.can("parallel", s.loops("C")[-1])
    with pytest.raises(RefusedError, match="feeds the reduce iterator"):
        s.parallel(s.loops("C")[-1])
    with pytest.raises(ScheduleError, match="there is no block D") as caught:
        s.can("compute_inline", "D")
    assert not isinstance(caught.value, RefusedError)
    with pytest.raises(UserError, match="block C reads no buffer D"):
        s.can("cache_read", "C", "D")
