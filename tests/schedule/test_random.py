"""Random sequences of primitives: whatever is not refused keeps the result.

Loops that were made parallel or vectorized are then run backwards too, which shows whether their
iterations really are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir import (
    Const,
    For,
    Function,
    Stmt,
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
    """Applies primitives to loops and blocks that the draw picks."""

    def __init__(self, schedule: Schedule, draw: Callable[[Any], Any]) -> None:
        self.s, self.draw = schedule, draw
        self.done = 0

    def block(self) -> Any:
        blocks = self.s.blocks()
        return blocks[self.draw(st.integers(0, 7)) % len(blocks)]

    def loops(self) -> tuple[Loop, ...]:
        return self.s.loops(self.block())

    def loop(self) -> Loop:
        loops = self.s.all_loops()
        return loops[self.draw(st.integers(0, 15)) % len(loops)]

    def factor(self) -> int:
        return self.draw(st.integers(1, 5))

    def step(self) -> None:
        move = self.draw(st.sampled_from(_MOVES))
        try:
            move(self)
            self.done += 1
        except ScheduleError as error:
            assert error.reason or error.remedy, "a refusal says why"

    def split(self) -> None:
        if _iterations(self.s.function) < MOST_ITERATIONS:
            self.s.split(self.loop(), self.factor())

    def fuse(self) -> None:
        loops = self.loops()
        at = self.draw(st.integers(0, 5)) % max(1, len(loops) - 1)
        self.s.fuse(*loops[at : at + 2])

    def reorder(self) -> None:
        loops = self.loops()
        order = self.draw(st.permutations(range(len(loops))))
        self.s.reorder(*(loops[o] for o in order))

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
        self.s.rfactor(self.loop(), self.draw(st.integers(0, 1)))

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
        from tilewright.ir import child_stmts

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


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_legal_keeps_the_result(program: Any, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(SIZES)))
    p = program(name, **SIZES[name])
    player = _Player(p.schedule(), data.draw)
    for _ in range(data.draw(st.integers(1, 36))):
        player.step()
    s = player.s
    verify(s.function)
    _run(s.function, p)
    _run(_backwards(s.function), p)
    again = Trace.from_json(s.trace.to_json()).replay(p.function)
    assert str(again) == str(s) and again.trace == s.trace
    assert math.isfinite(player.done)
