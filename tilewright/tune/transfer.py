"""What was good elsewhere is tried first: on other machines, for other shapes, in other models.

Choices are compared by what they stand for, not by position: a tile of 6 by 4 vectors is the same
for every shape, though rules may rank it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.tune.allocation import Search
from tilewright.tune.records.record import Record
from tilewright.tune.spaces.space import Sample
from tilewright.tune.tuners.tuner import matching

#: Samples of others that a search begins with, at most.
_SEEDS: Final = 4


def seeds_for(search: Search, records: Iterable[Record], space_name: str) -> list[Sample]:
    """The best samples of similar tasks, as far as they can be had here."""
    others = [r for r in records if r.space == space_name and _helps(r, search)]
    ranked = sorted(others, key=lambda r: (not _is_same(r, search), r.ratio or 1.0))
    found = dict.fromkeys(matching(search.space, r.values) for r in ranked)
    return [s for s in found if s.taken][:_SEEDS]


def _helps(record: Record, search: Search) -> bool:
    """Whether it was faster than the default there, by choices that there are here."""
    faster = record.ratio is not None and record.ratio < 1.0
    return faster and bool(record.values) and record.values.keys() <= search.space.knobs.keys()


def _is_same(record: Record, search: Search) -> bool:
    return record.task == search.task.key
