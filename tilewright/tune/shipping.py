"""Adds the winners of searches to the records shipped with the package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tilewright import __version__
from tilewright.shipped import shipped_path
from tilewright.tune.records.best import FOR_MODELS, best_records
from tilewright.tune.records.file import read_records, write_records
from tilewright.tune.records.record import DECISIONS, Record

#: Winners above this ratio to the default are not worth shipping.
_WORTH: Final = 0.97


def add_shipped(records: Iterable[Record]) -> list[Path]:
    """Add winners by a sufficient margin to the records shipped with the package; gives the files.

    Records of other versions are removed: the default that they were compared with has changed.
    """
    given = [r for r in records if r.space in (*FOR_MODELS, DECISIONS)]
    written: list[Path] = []
    for target in dict.fromkeys(r.target for r in given):
        path = shipped_path(target)
        known = read_records(path) if path.exists() else []
        known = [r for r in known if r.versions.get("tilewright") == __version__]
        best = best_records([*known, *given]).get(target, {})
        kept = [_slim(r) for _, r in sorted(best.items()) if (r.ratio or 1.0) <= _WORTH]
        if kept:
            write_records(kept, path)
            written.append(path)
    return written


def _slim(record: Record) -> Record:
    """The record without the fields that only searches need."""
    return replace(record, features=(), sample={})
