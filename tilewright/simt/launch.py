"""The shape of a launch: how many threads a block has, and how many blocks execute together."""

from __future__ import annotations

import math
from typing import Final

from tilewright.ir import Buffer, For, threads_of
from tilewright.simt.lanes import Geometry
from tilewright.simt.memory import bytes_for_each
from tilewright.simt.state import State
from tilewright.support.errors import UserError

_MAX_THREADS: Final = 1024
#: As many lanes execute together as keep NumPy busy and the arrays in the caches, and as many
#: blocks as have room for the memory of their threads.
_MAX_LANES: Final = 1 << 16
_MAX_BYTES: Final = 1 << 28


def block_extents(state: State, s: For) -> tuple[int, int, int]:
    """How many threads a block has along each axis, no more than a GPU takes."""
    try:
        extents = threads_of(s)
    except UserError as error:
        raise state.error(s, error.what) from None
    threads = math.prod(extents)
    if threads > _MAX_THREADS:
        raise state.error(s, f"a block of {threads} threads has more than {_MAX_THREADS}")
    return extents


def blocks_together(state: State, geometry: Geometry, allocs: list[Buffer]) -> int:
    """How many blocks execute together."""
    taken = 1
    for buffer in allocs:
        copies = geometry.threads if buffer.scope == "local" else 1
        # Sizes that depend on the block are not known yet.
        known = all(v in state.env for d in buffer.shape for v in d.variables)
        taken += copies * bytes_for_each(buffer, state.size(buffer)) if known else 0
    return max(1, min(_MAX_LANES // geometry.threads, _MAX_BYTES // taken))
