"""Few results of long sums: many blocks of threads sum parts, and a second launch joins them.

for k: S += X[k]      -->      for p in blocks: P[p] += X[p * length + k]         by threads each
                               S += P[p]                                          in one block
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import has_own_loops
from tilewright.schedule.rules.gpu.grid import (
    THREADS,
    count_of,
    feeds_only,
    fused,
    only_reduces,
    threads_for,
)
from tilewright.schedule.rules.gpu.results import Grid, result_loops, schedule_sum
from tilewright.schedule.rules.gpu.rows import Sharing, schedule_rows
from tilewright.schedule.rules.reductions.rows import walks_neighbours
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The fewest elements of a part, where they are contiguous and where they are not.
_LEAST_ROW: Final = 4096
_LEAST_COLUMN: Final = 64
#: The same for non-contiguous elements where parts are of equal length.
_SHORT: Final = 8
#: Parts of a sum of unknown length.
_UNKNOWN: Final = 128
#: The value assumed for an unknown length.
_LONG: Final = 1 << 16


class LongSum(NamedTuple):
    """The loops of a sum, the number of results, and the number of elements of each."""

    along: list[Loop]
    results: int
    length: int | None
    is_row: bool


class Parts(NamedTuple):
    """Into how many parts a sum is cut."""

    along: list[Loop]
    number: int
    is_row: bool


def _match(s: Schedule, name: str, target: Target) -> LongSum | None:
    block, loops = s.block_of(name), s.loops(name)
    if not only_reduces(block) or not has_own_loops(s, name):
        return None
    over = [loop for loop in loops if feeds_only(block, loop, "spatial")]
    along = [loop for loop in loops if loop not in over]
    results, length, is_row = count_of(s, over), count_of(s, along), walks_neighbours(s, name)
    if results is None or results == 0 or length == 0:
        return None
    gpu = target.gpu
    assert gpu is not None
    # The number of results for which a block (rows) or a thread per result gives enough work.
    enough = gpu.multiprocessors if is_row else gpu.multiprocessors * THREADS // 2
    least = 2 * (_LEAST_ROW if is_row else _LEAST_COLUMN)
    is_long = results < enough // 2 and (_LONG if length is None else length) >= least
    return LongSum(along, results, length, is_row) if is_long else None


def _plan(found: LongSum, target: Target, choices: Choices) -> Parts:
    gpu = target.gpu
    assert gpu is not None
    wanted = gpu.multiprocessors * (2 if found.is_row else gpu.threads)
    least = _LEAST_ROW if found.is_row else _LEAST_COLUMN
    most = _UNKNOWN if found.length is None else found.length // least
    own = max(1, min(most, -(-wanted // found.results)))
    if not found.is_row and found.length is not None:
        own = _balanced(found.length, -(-wanted // found.results)) or own
    return Parts(
        found.along, choices.choose("parts", [own, *{1 + own // 2, 2 * own} - {own}]), found.is_row
    )


def _balanced(length: int, most: int) -> int | None:
    """The number of equal parts closest to a part's length: both are summed one after the other."""
    even = [n for n in range(2, min(most, length // _SHORT) + 1) if length % n == 0]
    best = min(even, key=lambda n: n + length // n, default=None)
    return best if best is not None and length // best <= _LEAST_COLUMN else None


def _schedule(s: Schedule, name: str, plan: Parts, target: Target) -> None:
    part, _ = s.split(fused(s, plan.along), plan.number, None)
    parts = s.rfactor(part, 0).name
    if plan.is_row:
        schedule_rows(s, "", Sharing([parts], THREADS, 1), target)
        schedule_rows(s, "", Sharing([name], min(THREADS, threads_for(plan.number)), 1), target)
        return
    for block in (parts, name):
        loops = result_loops(s, block)
        if not loops:
            schedule_rows(s, "", Sharing([block], threads_for(plan.number), 1), target)
        else:
            schedule_sum(s, block, Grid(loops, threads_for(count_of(s, loops), 128)), target)


PARTS = Rule("parts", _match, _plan, _schedule)
