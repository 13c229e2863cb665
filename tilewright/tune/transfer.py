"""Seeds a search with good samples from other machines, shapes or models.

Choices are compared by their text, not by position: a tile of 6 by 4 vectors is the same for every
shape, though rules may rank it differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.tune.allocation import Search
from tilewright.tune.records.record import Record
from tilewright.tune.spaces.space import Sample
from tilewright.tune.tuners.tuner import matching

#: Most seeds of a search.
_SEEDS: Final = 4


def seeds_for(search: Search, records: Iterable[Record], space_name: str) -> list[Sample]:
    """The best samples of similar tasks, as far as this space has them."""
    others = [r for r in records if r.space == space_name and _helps(r, search)]
    ranked = sorted(others, key=lambda r: (not _is_same(r, search), r.ratio or 1.0))
    found = dict.fromkeys(matching(search.space, r.values) for r in ranked)
    return [s for s in found if s.taken][:_SEEDS]


def _helps(record: Record, search: Search) -> bool:
    """Whether it was faster than its default, by choices that exist here."""
    faster = record.ratio is not None and record.ratio < 1.0
    return faster and bool(record.values) and record.values.keys() <= search.space.knobs.keys()


def _is_same(record: Record, search: Search) -> bool:
    return record.task == search.task.key
