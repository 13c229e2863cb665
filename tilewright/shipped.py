"""Tuning records shipped with the package: the best schedules measured on our machines.

A file below `tune/shipped` holds the records of one machine (`Target.machine`), one per line, and
is named by a digest of the machine's text, so that it is found without opening other files or
importing the tuner. Records apply only to the version of Tilewright they were measured with, and
those of a `PassContext` take precedence. `TILEWRIGHT_SHIPPED_RECORDS=0`, or the context option
`shipped_records`, disables them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright import __version__
from tilewright.support.config import config

if TYPE_CHECKING:
    from tilewright.graph import PassContext

FOLDER = Path(__file__).parent / "tune" / "shipped"


class Shipped(NamedTuple):
    """The records for one machine."""

    #: Scheduler keys by `loops_key`, and chosen options by decision key.
    schedulers: Mapping[str, str]
    decisions: Mapping[str, str]


def with_shipped(context: PassContext, machine: str) -> PassContext:
    """The context with the shipped records for a machine, where it has none of its own."""
    if not context.option("shipped_records", config().shipped_records):
        return context
    found = shipped_for(machine)
    if not any(found):
        return context
    schedulers, decisions = context.schedulers, context.decisions
    return replace(
        context,
        schedulers={**schedulers, machine: {**found.schedulers, **schedulers.get(machine, {})}},
        decisions={**decisions, machine: {**found.decisions, **decisions.get(machine, {})}},
        _tokens=[],
    )


def shipped_path(machine: str) -> Path:
    """The file of records for a machine."""
    return FOLDER / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.jsonl"


def shipped_for(machine: str) -> Shipped:
    """The shipped records for a machine."""
    path = shipped_path(machine)
    return _read(machine, path, path.stat().st_mtime_ns) if path.exists() else Shipped({}, {})


@cache
def _read(machine: str, path: Path, written: int) -> Shipped:
    """The records in a file; `written`, its modification time, only keys the cache."""
    del written
    from tilewright.schedule import tuned_key

    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_bytes().splitlines()]
    own = [
        r for r in lines if r["target"] == machine and r["versions"]["tilewright"] == __version__
    ]
    keys = {r["task"]: tuned_key(r["trace"]) for r in own if r["trace"]}
    options = {r["task"]: next(iter(r["values"].values())) for r in own if not r["trace"]}
    return Shipped(keys, options)
