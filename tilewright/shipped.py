"""Records of tuning that come with the package: winners on machines that we had.

A file below `tune/shipped` holds the winners for one machine (`Target.machine`), a line each, and
is called after a digest of that text, so that it is found without reading others, and without
loading what tunes. Records count for the version of Tilewright by which they were measured, and
give way to those that a `PassContext` brings. `TILEWRIGHT_SHIPPED_RECORDS=0`, or the option
`shipped_records` of a context, leaves them out.
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
    """What is known of a machine."""

    #: Schedulers by the keys of loops, and options by the keys of decisions.
    schedulers: Mapping[str, str]
    decisions: Mapping[str, str]


def with_shipped(context: PassContext, machine: str) -> PassContext:
    """A context with what the package knows of a machine, where it names nothing else."""
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
    """The file for a machine."""
    return FOLDER / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.jsonl"


def shipped_for(machine: str) -> Shipped:
    """What the package knows of a machine."""
    path = shipped_path(machine)
    return _read(machine, path, path.stat().st_mtime_ns) if path.exists() else Shipped({}, {})


@cache
def _read(machine: str, path: Path, written: int) -> Shipped:
    """What a file says that was written at this time."""
    del written
    from tilewright.schedule import tuned_key

    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_bytes().splitlines()]
    own = [
        r for r in lines if r["target"] == machine and r["versions"]["tilewright"] == __version__
    ]
    keys = {r["task"]: tuned_key(r["trace"]) for r in own if r["trace"]}
    options = {r["task"]: next(iter(r["values"].values())) for r in own if not r["trace"]}
    return Shipped(keys, options)
