"""Random sequences of primitives: whatever is not refused keeps the result.

Loops that were made parallel or vectorized are then run backwards too, which shows whether their
iterations really are independent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir import (
    Const,
    For,
    Function,
    Stmt,
    child_stmts,
    interpret,
    map_function,
    substitute_stmt,
    verify,
)
from tilewright.schedule import Loop, Schedule, ScheduleError, Trace

SIZES: dict[str, dict[str, int]] = {
    "matmul": {"n": 4, "m": 3, "k": 5},
    "elementwise": {"n": 6, "m": 5},
    "row_max": {"n": 3, "m": 7},
    "argmax": {"n": 3, "m": 6},
    "running_sum": {"n": 4, "m": 3},
}
#: Uneven splits add iterations that do nothing; more than this is not worth interpreting.
MOST_ITERATIONS = 600


class _Player:
    """Applies primitives to loops and blocks; `pick(n)` gives a number below n."""

    def __init__(self, schedule: Schedule, pick: Callable[[int], int]) -> None:
        self.s, self.pick = schedule, pick
        self.done = 0

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.pick(len(items))]

    def block(self) -> Any:
        return self.one_of(self.s.blocks())

    def loop(self) -> Loop:
        return self.one_of(self.s.all_loops())

    def factor(self) -> int:
        return 1 + self.pick(5)

    def step(self) -> None:
        try:
            self.one_of(_MOVES)(self)
            self.done += 1
        except ScheduleError as error:
            assert error.reason or error.remedy, "a refusal says why"

    def split(self) -> None:
        if _iterations(self.s.function) < MOST_ITERATIONS:
            self.s.split(self.loop(), self.factor())

    def fuse(self) -> None:
        loops = self.s.loops(self.block())
        at = self.pick(max(1, len(loops) - 1))
        self.s.fuse(*loops[at : at + 2])

    def reorder(self) -> None:
        loops = list(self.s.loops(self.block()))
        self.s.reorder(*(loops.pop(self.pick(len(loops))) for _ in range(len(loops))))

    def parallel(self) -> None:
        self.s.parallel(self.loop())

    def vectorize(self) -> None:
        self.s.vectorize(self.loop())

    def unroll(self) -> None:
        self.s.unroll(self.loop())

    def partition(self) -> None:
        if len(self.s.blocks()) < 8:
            self.s.loop_partition(self.loop(), self.factor())

    def decompose(self) -> None:
        self.s.decompose_reduction(self.block(), self.loop())

    def rfactor(self) -> None:
        self.s.rfactor(self.loop(), self.pick(2))

    def blockize(self) -> None:
        self.s.blockize(self.loop())

    def annotate(self) -> None:
        self.s.annotate(self.block(), "note", self.factor())


_MOVES = [
    *[_Player.split, _Player.fuse, _Player.reorder] * 4,
    *[_Player.decompose, _Player.partition, _Player.rfactor, _Player.blockize] * 2,
    _Player.parallel,
    _Player.vectorize,
    _Player.unroll,
    _Player.annotate,
]


def _iterations(function: Function) -> int:
    def count(stmt: Stmt) -> int:
        inside = sum(count(s) for s in child_stmts(stmt)) or 1
        if not isinstance(stmt, For):
            return inside
        return inside * (int(stmt.extent.value) if isinstance(stmt.extent, Const) else 8)

    return count(function.body)


def _backwards(function: Function) -> Function:
    """Loops without an order run from the end."""

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, For) or stmt.kind not in ("parallel", "vectorized"):
            return None
        last = stmt.extent - 1 - stmt.var
        return replace(stmt, kind="serial", body=substitute_stmt(stmt.body, {stmt.var: last}))

    return map_function(function, on_stmt)


def _run(function: Function, program: Any) -> None:
    outputs = [np.full(e.shape, 77, e.dtype) for e in program.expected]
    interpret(function, *program.inputs, *outputs)
    for output, expected in zip(outputs, program.expected, strict=True):
        np.testing.assert_array_equal(output, expected)


def _check(s: Schedule, program: Any) -> None:
    verify(s.function)
    _run(s.function, program)
    _run(_backwards(s.function), program)
    again = Trace.from_json(s.trace.to_json()).replay(program.function)
    assert str(again) == str(s) and again.trace == s.trace


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_legal_keeps_the_result(program: Any, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(SIZES)))
    p = program(name, **SIZES[name])
    player = _Player(p.schedule(), lambda count: data.draw(st.integers(0, count - 1)))
    for _ in range(data.draw(st.integers(1, 36))):
        player.step()
    _check(player.s, p)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_dozens_of_steps(program: Any, name: str) -> None:
    p = program(name, **SIZES[name])
    player = _Player(p.schedule(), random.Random(name).randrange)
    while player.done < 36:
        player.step()
    _check(player.s, p)
