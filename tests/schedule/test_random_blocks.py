"""Random sequences of block and loop primitives: whatever is not refused keeps the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.schedule.equivalence import check, iterations
from tilewright.ir import SCOPES, child_stmts
from tilewright.schedule import BlockRef, Loop, Schedule
from tilewright.support.errors import UserError

SIZES: dict[str, dict[str, int]] = {
    "chain": {"n": 5, "m": 3, "k": 4},
    "window": {"n": 9},
    "normalized": {"n": 3, "m": 5},
    "diamond": {"n": 4},
    "argmax": {"n": 3, "m": 6},
    "running_sum": {"n": 4, "m": 3},
    "matmul": {"n": 4, "m": 3, "k": 5},
}
#: More iterations, or blocks, than these are not worth interpreting.
MOST_ITERATIONS, MOST_BLOCKS = 500, 10
LAYOUTS: dict[int, list[Callable[..., Any]]] = {
    1: [lambda i: (i // 4, i % 4), lambda i: (i % 3, i // 3), lambda i: i + 1],
    2: [
        lambda i, j: (j, i),
        lambda i, j: (j // 2, i, j % 2),
        lambda i, j: (i // 3, j, i % 3),
    ],
    3: [lambda i, j, k: (j, k, i)],
}


class Player:
    """Applies primitives to loops and blocks that the draw picks."""

    def __init__(self, schedule: Schedule, draw: Callable[[int], int]) -> None:
        self.s, self.draw = schedule, draw
        self.done: list[str] = []

    def pick(self, among: Any) -> Any:
        return among[self.draw(len(among))]

    def block(self) -> BlockRef:
        return self.pick(self.s.blocks())

    def buffer(self, block: BlockRef) -> str:
        held = self.s.block_of(block)
        return self.pick([r.buffer.name for r in (*held.writes, *held.reads)])

    def loop(self) -> Loop:
        return self.pick(self.s.all_loops())

    def step(self) -> None:
        move = self.pick(MOVES)
        try:
            move(self)
        except UserError as error:
            assert error.reason or error.remedy, f"a refusal says why: {error.what}"
        else:
            self.done.append(move.__name__)

    @property
    def is_small(self) -> bool:
        few = len(self.s.blocks()) < MOST_BLOCKS
        return few and iterations(self.s.function) < MOST_ITERATIONS

    # ---- loops ----

    def split(self) -> None:
        if self.is_small:
            self.s.split(self.loop(), 2 + self.draw(3))

    def fuse(self) -> None:
        loops = self.s.loops(self.block())
        at = self.draw(max(1, len(loops) - 1))
        self.s.fuse(*loops[at : at + 2])

    def reorder(self) -> None:
        loops = list(self.s.loops(self.block()))
        order = [loops.pop(self.draw(len(loops))) for _ in range(len(loops))]
        self.s.reorder(*order)

    def parallel(self) -> None:
        self.s.parallel(self.loop())

    def vectorize(self) -> None:
        self.s.vectorize(self.loop())

    def decompose(self) -> None:
        self.s.decompose_reduction(self.block(), self.loop())

    def blockize(self) -> None:
        self.s.blockize(self.loop())

    def rfactor(self) -> None:
        self.s.rfactor(self.loop(), 0)

    def partition(self) -> None:
        if self.is_small:
            self.s.loop_partition(self.loop(), 1 + self.draw(3))

    # ---- blocks ----

    def inline(self) -> None:
        self.s.compute_inline(self.block())

    def reverse_inline(self) -> None:
        self.s.reverse_compute_inline(self.block())

    def compute_at(self) -> None:
        if self.is_small:
            self.s.compute_at(self.block(), self.loop())

    def reverse_compute_at(self) -> None:
        if self.is_small:
            self.s.reverse_compute_at(self.block(), self.loop())

    def cache_read(self) -> None:
        block = self.block()
        if self.is_small:
            self.s.cache_read(block, self.buffer(block), self.pick(SCOPES))

    def cache_write(self) -> None:
        block = self.block()
        if self.is_small:
            self.s.cache_write(block, self.buffer(block), self.pick(SCOPES))

    def reindex(self) -> None:
        block = self.block()
        if self.is_small:
            self.s.reindex(block, self.buffer(block))

    def transform_layout(self) -> None:
        block = self.block()
        name = self.buffer(block)
        regions = (*self.s.block_of(block).writes, *self.s.block_of(block).reads)
        buffer = next(r.buffer for r in regions if r.buffer.name == name)
        if buffer in self.s.function.buffers or buffer.ndim not in LAYOUTS:
            return
        pad = self.pick([None, 0.0])
        self.s.transform_layout(block, name, self.pick(LAYOUTS[buffer.ndim]), pad)

    def set_scope(self) -> None:
        block = self.block()
        self.s.set_scope(block, self.buffer(block), self.pick(SCOPES))

    def storage_align(self) -> None:
        block = self.block()
        self.s.storage_align(block, self.buffer(block), 0, 4, self.draw(4))

    def pad(self) -> None:
        block = self.block()
        if self.is_small:
            self.s.pad(block, [1 + self.draw(3) for _ in self.s.block_of(block).iters])

    def decompose_padding(self) -> None:
        block = self.block()
        self.s.decompose_padding(block, self.pick(self.s.loops(block) or (self.loop(),)))

    def double_buffer(self) -> None:
        block = self.block()
        self.s.double_buffer(block, self.pick(self.s.loops(block) or (self.loop(),)))

    def pipeline(self) -> None:
        if self.is_small:
            loop = self.loop()
            parts = len(child_stmts(self.s.loop_of(loop).body)) or 1
            stages = [0]
            while len(stages) < parts:
                stages.append(stages[-1] + self.draw(2))
            self.s.software_pipeline(loop, stages)


MOVES: list[Callable[[Player], None]] = [
    *[Player.split, Player.fuse, Player.reorder] * 2,
    *[Player.compute_at, Player.reverse_compute_at] * 4,
    *[Player.cache_read, Player.cache_write, Player.transform_layout, Player.reindex] * 2,
    *[Player.inline, Player.reverse_inline, Player.pad, Player.set_scope, Player.storage_align],
    *[Player.decompose_padding, Player.double_buffer, Player.pipeline],
    *[Player.parallel, Player.vectorize, Player.decompose, Player.blockize],
    *[Player.rfactor, Player.partition],
]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_legal_keeps_the_result(program: Any, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(SIZES)))
    p = program(name, **SIZES[name])
    player = Player(p.schedule(), lambda count: data.draw(st.integers(0, count - 1)))
    for _ in range(data.draw(st.integers(1, 40))):
        player.step()
    check(player.s, p)
