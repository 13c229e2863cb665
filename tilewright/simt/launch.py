"""The shape of a launch: threads per block, and blocks that execute together."""

from __future__ import annotations

import math
from typing import Final

from tilewright.ir import Buffer, For, threads_of
from tilewright.simt.lanes import Geometry
from tilewright.simt.memory import bytes_for_each
from tilewright.simt.state import State
from tilewright.support.errors import UserError

_MAX_THREADS: Final = 1024
#: Limits for blocks that execute together: enough lanes to keep NumPy busy with arrays that fit the
#: caches, and the memory of their threads.
_MAX_LANES: Final = 1 << 16
_MAX_BYTES: Final = 1 << 28


def block_extents(state: State, s: For) -> tuple[int, int, int]:
    """The threads per block along each axis, within the limits of a GPU."""
    try:
        extents = threads_of(s)
    except UserError as error:
        raise state.error(s, error.what) from None
    threads = math.prod(extents)
    if threads > _MAX_THREADS:
        raise state.error(s, f"a block of {threads} threads has more than {_MAX_THREADS}")
    return extents


def blocks_together(state: State, geometry: Geometry, allocs: list[Buffer]) -> int:
    """The number of blocks that execute together."""
    taken = 1
    for buffer in allocs:
        copies = geometry.threads if buffer.scope == "local" else 1
        # Sizes that depend on the block are not known yet, and not counted.
        known = all(v in state.env for d in buffer.shape for v in d.variables)
        taken += copies * bytes_for_each(buffer, state.size(buffer)) if known else 0
    return max(1, min(_MAX_LANES // geometry.threads, _MAX_BYTES // taken))
