"""What follows a reduction, element by element: done in the tile that was just computed."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import is_step, stores_of
from tilewright.schedule.schedule import Schedule


def take_on(s: Schedule, name: str) -> list[str]:
    """The blocks that take the results of `name` on, in order; a plain copy if there is none.

    The results themselves stay in the tile.
    """
    out = stores_of(s.block_of(name))[0].buffer
    # What follows in a step of a scan may ask for all results of the step at once.
    if is_step(s.block_of(name)) or out in s.function.buffers:
        return [s.cache_write(name, 0, "local").name]
    s.set_scope(name, out, "local")
    return [b.name for b in s.consumers(name)]


def place_epilogue(s: Schedule, names: Sequence[str], loop: Loop, lanes: int) -> None:
    """Compute these blocks in the loop over tiles, by vectors."""
    for name in names:
        if s.can("reverse_compute_at", name, loop):
            vectorize_tile(s, s.reverse_compute_at(name, loop), lanes)


def vectorize_tile(s: Schedule, loops: Sequence[Loop], lanes: int) -> None:
    """Vectorize the innermost loop of a small nest and unroll the rest."""
    if not loops:
        return
    *outer, inner = loops
    extent = s.loop_of(inner).extent
    if isinstance(extent, Const) and extent.value > lanes:
        middle, inner = s.split(inner, None, lanes)
        outer.append(middle)
    s.vectorize(inner)
    for loop in outer:
        s.unroll(loop)
