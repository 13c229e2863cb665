"""Selects the winning schedules and decisions from records, by machine and task."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Final

from tilewright.support.errors import UserError
from tilewright.tune.records.record import DECISIONS, Record

#: Spaces whose samples are measured against a model's default. Those of templates are not, and name
#: the buffers of one function.
FOR_MODELS: Final = ("rules", "sketches")


def winning(records: Iterable[Record]) -> list[Record]:
    """The winning records. The last verdict on each schedule, and each option, counts."""
    last: dict[tuple[str, str, str], Record] = {}
    for record in records:
        if record.kind == "verdict":
            chosen = record.trace if record.space != DECISIONS else record.values
            last[record.target, record.task, str(chosen)] = record
    return [r for r in last.values() if r.wins and r.ratio is not None]


def best_records(records: Iterable[Record]) -> dict[str, dict[str, Record]]:
    """The best winner for each task, by target."""
    found: dict[str, dict[str, Record]] = {}
    for record in winning(records):
        winner = found.setdefault(record.target, {})
        if _is_better(record, winner.get(record.task)):
            winner[record.task] = record
    return found


def _is_better(record: Record, other: Record | None) -> bool:
    assert record.ratio is not None
    return other is None or other.ratio is None or record.ratio < other.ratio


def schedulers_of(records: Iterable[Record]) -> Mapping[str, Mapping[str, str]]:
    """The scheduler keys of the winners for models, by target and task."""
    best = best_records(r for r in records if r.space in FOR_MODELS)
    keys = {t: {task: _key(r) for task, r in found.items()} for t, found in best.items()}
    return {t: {task: k for task, k in found.items() if k} for t, found in keys.items()}


def decisions_of(records: Iterable[Record]) -> Mapping[str, Mapping[str, str]]:
    """The winning options of graph decisions, by target and decision key."""
    best = best_records(r for r in records if r.space == DECISIONS and r.values)
    return {t: {key: option_of(r) for key, r in found.items()} for t, found in best.items()}


def option_of(record: Record) -> str:
    """The option in a decision's record."""
    return next(iter(record.values.values()))


def _key(record: Record) -> str | None:
    try:
        return record.scheduler
    except UserError as error:
        warnings.warn(f"the record of {record.name} is left out: {error}", stacklevel=2)
        return None
