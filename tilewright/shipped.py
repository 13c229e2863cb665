"""Records of tuning that come with the package: winners on machines that we had.

A file below `tune/shipped` holds the winners for one target, a line each, and is called after a
digest of the target's text, so that the one for a machine is found without reading others, and
without loading what tunes. Records count for the version of Tilewright by which they were measured,
and give way to those that a `PassContext` brings. `TILEWRIGHT_SHIPPED_RECORDS=0`, or the option
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


def with_shipped(context: PassContext, target: str) -> PassContext:
    """A context with what the package knows of a target, where it names nothing else."""
    if not context.option("shipped_records", config().shipped_records):
        return context
    found = shipped_for(target)
    if not any(found):
        return context
    schedulers, decisions = context.schedulers, context.decisions
    return replace(
        context,
        schedulers={**schedulers, target: {**found.schedulers, **schedulers.get(target, {})}},
        decisions={**decisions, target: {**found.decisions, **decisions.get(target, {})}},
        _tokens=[],
    )


def shipped_path(target: str) -> Path:
    """The file for a target."""
    return FOLDER / f"{hashlib.sha256(target.encode()).hexdigest()[:16]}.jsonl"


def shipped_for(target: str) -> Shipped:
    """What the package knows of a target."""
    path = shipped_path(target)
    return _read(target, path, path.stat().st_mtime_ns) if path.exists() else Shipped({}, {})


@cache
def _read(target: str, path: Path, written: int) -> Shipped:
    """What a file says that was written at this time."""
    del written
    from tilewright.schedule import Trace, Tuned

    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_bytes().splitlines()]
    own = [r for r in lines if r["target"] == target and r["versions"]["tilewright"] == __version__]
    traces = {r["task"]: Trace.from_json(r["trace"]) for r in own if r["trace"]}
    options = {r["task"]: next(iter(r["values"].values())) for r in own if not r["trace"]}
    return Shipped({task: Tuned(trace).key for task, trace in traces.items()}, options)
