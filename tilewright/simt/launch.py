"""The shape of a launch: how many threads a block has, and how many blocks execute together."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.ir import THREAD_AXES, Buffer, Const, For, walk
from tilewright.simt.lanes import AXES, Geometry
from tilewright.simt.memory import bytes_for_each
from tilewright.simt.state import State

_MAX_THREADS: Final = 1024
#: As many lanes execute together as keep NumPy busy and the arrays in the caches, and as many
#: blocks as have room for the memory of their threads.
_MAX_LANES: Final = 1 << 16
_MAX_BYTES: Final = 1 << 28


def block_extents(state: State, s: For) -> tuple[int, ...]:
    """The greatest extent of each axis of threads over all phases."""
    extents = dict.fromkeys(AXES, 1)
    for loop in (x for x in walk(s) if isinstance(x, For) and x.axis in THREAD_AXES):
        if not isinstance(loop.extent, Const):
            raise state.error(loop, "the extent of a loop over threads is not constant")
        letter = loop.axis[-1]
        extents[letter] = max(extents[letter], int(loop.extent.value))
    threads = int(np.prod(list(extents.values())))
    if threads > _MAX_THREADS:
        raise state.error(s, f"a block of {threads} threads has more than {_MAX_THREADS}")
    return tuple(extents.values())


def blocks_together(state: State, geometry: Geometry, allocs: list[Buffer]) -> int:
    """How many blocks execute together."""
    taken = 1
    for buffer in allocs:
        copies = geometry.threads if buffer.scope == "local" else 1
        # Sizes that depend on the block are not known yet.
        known = all(v in state.env for d in buffer.shape for v in d.variables)
        taken += copies * bytes_for_each(buffer, state.size(buffer)) if known else 0
    return max(1, min(_MAX_LANES // geometry.threads, _MAX_BYTES // taken))
