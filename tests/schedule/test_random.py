"""Random sequences of primitives: whatever is not refused keeps the result."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.schedule.equivalence import check, iterations
from tilewright.schedule import Loop, Schedule, ScheduleError

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
        if iterations(self.s.function) < MOST_ITERATIONS:
            self.s.split(self.loop(), self.factor())

    def fuse(self) -> None:
        loops = self.s.loops(self.block())
        at = self.pick(max(1, len(loops) - 1))
        self.s.fuse(*loops[at : at + 2])

    def merge(self) -> None:
        self.s.merge(self.loop(), self.loop())

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

    def peel(self) -> None:
        if len(self.s.blocks()) < 8:
            self.s.peel(self.loop(), 1 + self.factor())

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
    _Player.merge,
    _Player.peel,
    _Player.parallel,
    _Player.vectorize,
    _Player.unroll,
    _Player.annotate,
]


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
    check(player.s, p)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_dozens_of_steps(program: Any, name: str) -> None:
    p = program(name, **SIZES[name])
    player = _Player(p.schedule(), random.Random(name).randrange)
    while player.done < 36:
        player.step()
    check(player.s, p)
