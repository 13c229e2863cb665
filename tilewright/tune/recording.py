"""Makes records of measurements."""

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
    """The record of a measured schedule."""
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
    """Identifies the version of the rules, on which the meaning of samples depends."""
    return tool_version()[:16]
