"""What a measurement becomes in a file of records."""

from __future__ import annotations

import time

from tilewright import __version__
from tilewright.kernels.compiled import tool_version
from tilewright.runtime import Measured
from tilewright.tune.records.record import Kind, Record
from tilewright.tune.spaces.space import Point
from tilewright.tune.tasks import Task


def record_of(
    task: Task,
    point: Point,
    space_name: str,
    measured: Measured,
    kind: Kind,
    *,
    wins: bool = False,
) -> Record:
    """The record of a schedule that was measured."""
    return Record(
        task=task.key,
        name=task.name,
        calls=task.calls,
        target=task.target.machine,
        kind=kind,
        space=space_name,
        sample=point.sample.positions,
        values=point.values,
        ratio=None if measured.failure else measured.ratio,
        seconds=measured.seconds,
        reference=measured.reference,
        wins=wins,
        failure=measured.failure,
        reason=measured.reason,
        trace=point.trace.to_json(),
        features=point.features,
        at=time.time(),
        versions={"tilewright": __version__, "sources": sources_version()},
    )


def sources_version() -> str:
    """What identifies the rules by which positions in a space are to be understood."""
    return tool_version()[:16]
