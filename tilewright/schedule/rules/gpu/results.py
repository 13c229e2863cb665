"""A thread for each result, whatever the block computes: what other rules do not fit."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import For
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.gpu.grid import (
    count_of,
    feeds_only,
    feeds_some,
    fused,
    launch,
    threads_for,
)
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Results(NamedTuple):
    """Loops over results that are made independently of each other, and how many these are."""

    loops: list[Loop]
    count: int | None


class Grid(NamedTuple):
    """The same with the threads of a block."""

    loops: list[Loop]
    threads: int


def _match(s: Schedule, name: str, _target: Target) -> Results | None:
    """The first loops over results, inside of those that run in order (these stay on the host)."""
    block, loops = s.block_of(name), list(s.loops(name))
    while loops and feeds_some(block, loops[0], "ordered"):
        loops.pop(0)
    chosen: list[Loop] = []
    for loop in loops:
        if not feeds_only(block, loop, "spatial"):
            break
        if chosen and s.loop_of(chosen[-1]).body is not s.loop_of(loop):
            break
        chosen.append(loop)
    return Results(chosen, count_of(s, chosen)) if chosen else None


def _match_one(s: Schedule, name: str, _target: Target) -> Results | None:
    """The outermost loop that can be launched alone, where not all can together."""
    block = s.block_of(name)
    for loop in s.loops(name):
        if feeds_only(block, loop, "spatial") and s.can("bind", loop, "blockIdx.x"):
            return Results([loop], count_of(s, [loop]))
        if not isinstance(s.loop_of(loop).body, For):
            break
    return None


def _plan(found: Results, _target: Target, choices: Choices) -> Grid:
    own = threads_for(found.count)
    others = [n for n in (64, 128, 256, 512) if n != own]
    return Grid(found.loops, choices.choose("threads", [own, *others]))


def _schedule(s: Schedule, _name: str, plan: Grid, _target: Target) -> None:
    """for i: for j: C[i, j] = …

    -->  for b in blocks: for t in threads: C[…] = …
    """
    launch(s, fused(s, plan.loops), plan.threads)


RESULTS = Rule("results", _match, _plan, _schedule)
OUTERMOST = Rule("outermost", _match_one, _plan, _schedule)
