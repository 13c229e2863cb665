"""Gathers at computed indices: several channels per index.

    for c: for h: for w: Y[c, h, w] = X[c, place(h, w)] * weight(h, w) + …
    -->
    for c: for h: for w (by vectors): for c (four, unrolled): Y[c, h, w] = …

Indices and weights (sampled images, grids that are looked up) take most of the time, and are the
same for all channels.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import Block, Iter, Load, Var, all_exprs, free_vars, loads_in, work_of
from tilewright.schedule.rules.analysis import (
    extent_of,
    has_own_loops,
    is_injective,
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vector_lanes
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The most channels that share the computation of an index.
_MOST: Final = 4
#: The fraction of the work that channels must have in common.
_SHARE: Final = 0.5


def _match(s: Schedule, name: str, target: Target) -> Iter | None:
    """The variable of the channels."""
    block = s.block_of(name)
    if not is_injective(block) or not has_own_loops(s, name) or len(stores_of(block)) != 1:
        return None
    row = extent_of(block.iters[-1]) if block.iters else None
    if row is None or row % vector_lanes(block, target):
        return None
    return next((it for it in block.iters[:-1] if _shares_places(block, it)), None)


def _shares_places(block: Block, channel: Iter) -> bool:
    """Whether loaded elements index the image along a row, the same ones for all channels."""
    nodes = list(all_exprs(block.body))
    told = [i for e in nodes if isinstance(e, Load) for i in e.indices if loads_in(i)]
    around = frozenset[Var]().union(*map(free_vars, told))
    if not _counts(channel) or channel.var in around or block.iters[-1].var not in around:
        return False
    common = [e for e in nodes if channel.var not in free_vars(e)]
    return work_of(common) >= _SHARE * operations(block)


def _counts(channel: Iter) -> list[int]:
    """How many channels may be computed together, the most first."""
    extent = extent_of(channel) or 1
    return [n for n in range(_MOST, 1, -1) if extent % n == 0]


def _plan(channel: Iter, _target: Target, choices: Choices) -> tuple[Iter, int]:
    return channel, choices.choose("channels", _counts(channel))


def _schedule(s: Schedule, name: str, plan: tuple[Iter, int], target: Target) -> None:
    channel, count = plan
    block = s.block_of(name)
    loops = s.loops(name)
    at = [it.var for it in block.iters].index(channel.var)
    _, together = s.split(loops[at], None, count)
    places, lanes = s.split(loops[-1], None, vector_lanes(block, target))
    s.reorder(*loops[at + 1 : -1], places, together, lanes)
    s.unroll(together)
    s.vectorize(lanes)
    parallelize_outer(s, name, target, work=instances(block) * operations(block))


SHARED_PLACES = Rule("shared_places", _match, _plan, _schedule)
