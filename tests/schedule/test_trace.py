"""Traces: text, JSON, replay, and what is wrong with those that cannot be read"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.ir import same_function
from tilewright.schedule import ScheduleError, Trace
from tilewright.support.errors import UserError


def _scheduled(p: Any) -> Any:
    s = p.schedule()
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, *s.sample_tile(i, 2, decision=[3, 4]))
    s.reorder(i0, j, k, i1)
    s.annotate(i1, "note", {"loop": 3})
    s.decompose_reduction("C", k)
    return s


def test_text(program: Any, golden: Any) -> None:
    golden(str(_scheduled(program("matmul", n=12)).trace), "schedule/trace")


def test_json_and_replay(program: Any) -> None:
    p = program("matmul", n=12)
    s = _scheduled(p)
    text = json.dumps(s.trace.to_json())
    trace = Trace.from_json(text)
    assert trace == s.trace and str(trace) == str(s.trace)
    again = trace.replay(p.function)
    assert same_function(again.function, s.function)
    assert json.dumps(again.trace.to_json()) == text
    p.check(again)


def test_another_size_replays(program: Any) -> None:
    p = program("matmul", n=9)
    s = program("matmul", n=12).schedule()
    s.split("i", 4)
    s.parallel(s.loops("C")[0])
    p.check(s.trace.replay(p.function))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "it is no JSON"),
        ("[]", "it is no object"),
        ('{"version": 9, "steps": []}', "its version is 9, not 1"),
        ('{"version": 1}', "it has no list of steps"),
        ('{"version": 1, "steps": [3]}', "step 0 is no object"),
        ('{"version": 1, "steps": [{"args": []}]}', "step 0 has no name"),
        ('{"version": 1, "steps": [{"name": "split"}]}', "step 0 has no list of arguments"),
        (
            '{"version": 1, "steps": [{"name": "split", "args": [{"loop": "x"}]}]}',
            "step 0 names the loop 'x'",
        ),
        (
            '{"version": 1, "steps": [{"name": "split", "args": [{"what": 1}]}]}',
            "step 0 has the argument",
        ),
        (
            '{"version": 1, "steps": [{"name": "split", "args": [], "results": [3]}]}',
            "neither loop, value nor block",
        ),
    ],
)
def test_ill_formed_traces(data: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Trace.from_json(data)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"name": "splitt", "args": []}], "there is no primitive 'splitt'"),
        ([{"name": "__class__", "args": []}], "there is no primitive '__class__'"),
        ([{"name": "split", "args": [{"loop": 4}, 2]}], "no step before it made l4"),
        (
            [{"name": "loop", "args": [{"block": "C"}, 7], "results": [{"loop": 0}]}],
            "block C has 3 loops, number 7 is none",
        ),
        (
            [{"name": "loop", "args": [{"block": "Z"}, 0], "results": [{"loop": 0}]}],
            "there is no block Z",
        ),
        ([{"name": "split", "args": []}], "cannot replay step 0 of the trace, split"),
        ([{"name": "split", "args": ["x", 2]}], "cannot replay step 0 of the trace, split"),
        (
            [{"name": "loop", "args": [{"block": "C"}, "x"], "results": [{"loop": 0}]}],
            "cannot replay step 0 of the trace, loop",
        ),
        (
            [
                {"name": "loop", "args": [{"block": "C"}, 0], "results": [{"loop": 0}]},
                {"name": "split", "args": [{"loop": 0}, 2], "results": [{"loop": 1}]},
            ],
            "it gives 2 results, the trace says 1",
        ),
    ],
)
def test_traces_that_do_not_fit(program: Any, steps: list[Any], message: str) -> None:
    trace = Trace.from_json({"version": 1, "steps": steps})
    with pytest.raises(UserError, match=message):
        trace.replay(program("matmul").function)


def test_an_illegal_step_says_why(program: Any) -> None:
    s = program("matmul", n=12).schedule()
    s.split("i", 3, 4)
    with pytest.raises(ScheduleError, match="together they give 12 iterations, the loop has 13"):
        s.trace.replay(program("matmul", n=13).function)


def test_decisions(program: Any) -> None:
    s = _scheduled(program("matmul", n=12))
    assert list(s.trace.decisions.values()) == [(3, 4)]
    with pytest.raises(UserError, match="step 0 of the trace decides nothing"):
        s.trace.with_decision(0, [4, 3])
