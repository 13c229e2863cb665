"""Products by warp groups (four warps, `ir.warps`), executed for all groups at once.

Operands are read when a thread waits for the product, the latest time at which a GPU may read them:
operands overwritten too early are thus detected. The sums are accumulated at that time, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from tilewright.ir import (
    GROUP,
    GROUP_PRODUCTS,
    GROUP_ROWS,
    SUMS,
    TILE_SIDE,
    WARP,
    Call,
    Evaluate,
    Factors,
    GroupProduct,
    Load,
    sum_place,
    swizzled,
)
from tilewright.simt.error import LaneError
from tilewright.simt.lanes import Array, Lanes, Mask
from tilewright.simt.memory import Memory
from tilewright.simt.state import Run, State
from tilewright.simt.unknown import raise_where
from tilewright.simt.warps import multiplied, require_whole

_THREADS: Final = GROUP * WARP


def _product(state: State, s: Evaluate, call: Call) -> Run:
    product = GROUP_PRODUCTS[call.name]
    elements = [a.operands[0] for a in call.args[:3]]
    loads = [e for e in elements if isinstance(e, Load)]
    strides = [state.number(a) for a in call.args[3:]]
    tape = state.tape(s, *(load.indices[0] for load in loads))

    def run(active: Mask) -> None:
        places, _ = tape(active)
        memories = [state.memories[load.buffer] for load in loads]

        def later(_: Mask) -> None:
            _multiply(product, strides, state.lanes, memories, places, active)
            state.forget_loads(loads[0].buffer)

        state.products.append(state.told(s, later))

    return run


def _multiply(
    product: GroupProduct,
    strides: list[int],
    lanes: Lanes,
    memories: list[Memory],
    places: list[Array],
    active: Mask,
) -> None:
    """C += A · B; `places` are the indices of each thread's sums, and of the first of A and B."""
    if lanes.threads % _THREADS:
        raise LaneError(0, "its block is not made of groups of four warps")
    require_whole(lanes, active, _THREADS, "group")
    wanted = None if active is None else active[..., None]
    c, a, b = memories
    factors = product.factors
    rows = _Operand(factors, GROUP_ROWS, product.a_by_columns, *strides[:2])
    columns = _Operand(factors, product.columns, not product.b_by_columns, *strides[2:])
    load = _load_own if product.a_is_own else rows.load
    left = load(a, lanes, places[1], wanted)
    right = columns.load(b, lanes, places[2], wanted)
    total = multiplied(factors, left, np.swapaxes(right, -1, -2))
    index = np.broadcast_to(places[0], lanes.shape)[..., None] + np.arange(product.sums)
    before, unknown = c.load(lanes, index, wanted)
    if unknown is not None:
        raise_where(unknown, wanted, f"what a group of warps adds to in {c.buffer.name}")
    row, column = np.indices((GROUP_ROWS, product.columns))
    lane, own = sum_place(row % TILE_SIDE, column % TILE_SIDE)
    each = product.sums // (product.columns // TILE_SIDE)
    added: Array = np.zeros((*total.shape[:2], GROUP, WARP, product.sums), total.dtype)
    added[:, :, row // TILE_SIDE, lane, column // TILE_SIDE * each + own] = total
    c.store(lanes, index, before + added.reshape(before.shape), None, wanted)


class _Operand(NamedTuple):
    """An operand in shared memory: its number of rows or columns, whether these are contiguous, and
    the distances between rows and between blocks of such rows."""

    factors: Factors
    side: int
    is_inner: bool
    pitch: int
    apart: int

    def load(self, memory: Memory, lanes: Lanes, place: Array, wanted: Mask) -> Array:
        """The operands of all groups, with rows along the steps: (blocks, groups, side, steps).
        Each thread reads a part."""
        first = np.broadcast_to(place, lanes.shape).reshape(lanes.blocks, -1, _THREADS)
        differing = first != first[:, :, :1]
        if differing.any():
            raise LaneError(int(np.argmax(differing)), "its group names another operand")
        steps, pitch, size = self.factors.steps, self.factors.pitch, self.factors.a.itemsize
        row, step = np.indices((self.side, steps))
        outer, inner = (step, row) if self.is_inner else (row, step)
        offsets = inner // pitch * self.apart + outer * self.pitch + inner % pitch
        groups = lanes.threads // _THREADS
        own = np.tile(offsets.reshape(_THREADS, -1), (groups, 1))
        index = swizzled(first.reshape(lanes.shape)[..., None] + own, size)
        memory.require_fenced(lanes, index, wanted)
        found, unknown = memory.load(lanes, index, wanted)
        if unknown is not None:
            raise_where(unknown, wanted, f"what a group multiplies from {memory.buffer.name}")
        return found.reshape(lanes.blocks, groups, self.side, steps)


def _load_own(memory: Memory, lanes: Lanes, place: Array, wanted: Mask) -> Array:
    """An operand in the threads' registers, for all groups: (blocks, groups, 64, 16)."""
    index = np.broadcast_to(place, lanes.shape)[..., None] + np.arange(SUMS)
    found, unknown = memory.load(lanes, index, wanted)
    if unknown is not None:
        raise_where(unknown, wanted, f"what a group multiplies from {memory.buffer.name}")
    row, step = np.indices((GROUP_ROWS, TILE_SIDE))
    lane, own = sum_place(row % TILE_SIDE, step)
    held = found.reshape(lanes.blocks, -1, GROUP, WARP, SUMS)
    return held[:, :, row // TILE_SIDE, lane, own]


def _fence(state: State, _s: Evaluate, _call: Call) -> Run:
    return lambda _active: state.lanes.pass_fence()


def _arrive(state: State, s: Evaluate, call: Call) -> Run:
    def run(_active: Mask) -> None:
        if state.lanes.threads != 2 * _THREADS:
            raise LaneError(0, "its block is not made of two groups of four warps")
        if state.lanes.arrived is not None:
            raise LaneError(0, f"its group has not awaited time {state.lanes.arrived} yet")
        state.lanes.arrived = state.number(call.args[0])

    return state.told(s, run)


def await_group(state: State, s: Evaluate, call: Call) -> Run:
    """Checks, on awaiting the other group, that both groups have arrived for that time."""

    def run(_active: Mask) -> None:
        arrived, awaited = state.lanes.arrived, state.number(call.args[0])
        if arrived != awaited:
            last = "no time" if arrived is None else f"time {arrived}"
            raise LaneError(0, f"it awaits time {awaited}, and groups have arrived for {last}")

    return state.told(s, run)


def _start(_state: State, _s: Evaluate, _call: Call) -> Run:
    return lambda _active: None


def _commit(state: State, _s: Evaluate, _call: Call) -> Run:
    def run(_active: Mask) -> None:
        state.product_groups.append(state.products)
        state.products = []

    return run


def _wait(state: State, _s: Evaluate, call: Call) -> Run:
    left = state.number(call.args[-1])

    def run(active: Mask) -> None:
        while len(state.product_groups) > left:
            for multiply in state.product_groups.pop(0):
                multiply(active)

    return run


#: Executors of calls with side effects, by name.
GROUP_EFFECTS: Final[dict[str, Callable[[State, Evaluate, Call], Run]]] = {
    **dict.fromkeys(GROUP_PRODUCTS, _product),
    "groups_arrive": _arrive,
    "products_fence": _fence,
    "products_start": _start,
    "products_commit": _commit,
    "products_wait": _wait,
    "products_finish": _wait,
}
