"""Asynchronous copies to shared memory, complete when their thread waits (`lower.gpu.stages`).

The source is read at once. The destination counts as written from then on, so that races are
detected, and as unknown until the copy has completed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.ir import Call, Evaluate, Load
from tilewright.simt.lanes import Mask
from tilewright.simt.state import Copy, Run, State


def _copy(state: State, s: Evaluate, call: Call) -> Run:
    to, source = (a.operands[0] for a in call.args[:2])
    assert isinstance(to, Load) and isinstance(source, Load)
    near = np.arange(state.number(call.args[2]) // to.buffer.dtype.itemsize)
    tape = state.tape(s, to.indices[0], source.indices[0], call.args[3])

    def run(active: Mask) -> None:
        (place, first, read), _ = tape(active)
        lanes, memory = state.lanes, state.memories[to.buffer]
        wanted = None if active is None else active[..., None]
        is_read = np.asarray(read)[..., None] > 0
        loaded = is_read if wanted is None else wanted & is_read
        index = np.asarray(first)[..., None] + near
        values, _ = state.memories[source.buffer].load(lanes, index, loaded)
        values = np.where(is_read, values, np.zeros((), values.dtype))
        at = np.asarray(place)[..., None] + near
        memory.store(lanes, at, values, np.ones((), bool), wanted)
        state.forget_loads(to.buffer)
        state.copies.append(Copy(memory, at, values, wanted))

    return state.told(s, run)


def _commit(state: State, _s: Evaluate, _call: Call) -> Run:
    def run(_active: Mask) -> None:
        state.groups.append(state.copies)
        state.copies = []

    return run


def _wait(state: State, s: Evaluate, call: Call) -> Run:
    left = state.number(call.args[0])

    def run(_active: Mask) -> None:
        while len(state.groups) > left:
            for memory, at, values, wanted in state.groups.pop(0):
                memory.store(state.lanes, at, values, None, wanted)
                state.forget_loads(memory.buffer)

    return state.told(s, run)


#: Executors of calls with side effects, by name.
COPIES: Final[dict[str, Callable[[State, Evaluate, Call], Run]]] = {
    "async_copy": _copy,
    "async_commit": _commit,
    "async_wait": _wait,
}
