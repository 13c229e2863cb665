"""Builds candidates of a model's kernels and writes them as a bundle, to be measured elsewhere.

All are chosen before anything is measured: the default rules rank their candidates, so those that
differ from the default in one choice come first, then random ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from tilewright.models.native import target_info
from tilewright.runtime import BundleWriter, Measured, writing_bundle
from tilewright.schedule import Recorded
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath, text_path
from tilewright.tune.measuring.building import KernelBuilder
from tilewright.tune.measuring.data import trial_task
from tilewright.tune.recording import record_of
from tilewright.tune.spaces.space import Point, Space
from tilewright.tune.tasks import Task
from tilewright.tune.tuners.tuner import near_default, random_sample

#: The default number of candidates per task.
TRIALS: Final = 32
#: Samples that are tried for each candidate wanted.
_LOOKED_AT: Final = 8


@dataclass(frozen=True)
class BundleSummary:
    """The contents of a bundle."""

    path: str
    tasks: int
    candidates: int
    #: Candidates that could not be built.
    failed: int
    #: Tasks left out for lack of time, which are those with the smallest share of a run.
    left_out: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        rest = f", {self.failed} could not be built" if self.failed else ""
        rest += f", no time was left for {self.left_out} kernels" if self.left_out else ""
        return (
            f"{self.path}: {self.candidates} candidates of {self.tasks} kernels in"
            f" {self.bytes / 1e6:.1f} MB, built in {self.seconds:.0f} s{rest}"
        )


def write_bundle(
    tasks: Sequence[Task],
    space_of: Callable[[Task], Space],
    path: AnyPath,
    *,
    space_name: str,
    trials: int | None,
    budget: float,
    seed: int,
) -> BundleSummary:
    """Build candidates of all tasks, for at most `budget` seconds."""
    if not tasks:
        raise UserError("there is nothing to tune", reason="no kernel is left that has known sizes")
    start, target = time.monotonic(), tasks[0].target
    builder, rng = KernelBuilder(target), Random(seed)
    done = candidates = failed = 0
    try:
        pool = trial_task(tasks[0]).pool
        with writing_bundle(path, target_info(target), pool) as writer:
            for task in tasks:
                if time.monotonic() - start > budget:
                    break
                points = points_of(space_of(task), _LOOKED_AT * (trials or TRIALS), rng)
                made = _Made(task, builder, space_name, trials or TRIALS)
                built, lost = made.added(writer, points)
                done, candidates, failed = done + 1, candidates + built, failed + lost
    finally:
        builder.close()
    size, spent = Path(text_path(path)).stat().st_size, time.monotonic() - start
    left = len(tasks) - done
    return BundleSummary(text_path(path), done, candidates, failed, left, size, spent)


def points_of(space: Space, looked_at: int, rng: Random) -> Iterator[Point]:
    """Legal schedules with distinct loops, other than the default, from this many samples."""
    texts = {space.default.text}
    at_random = (random_sample(space, rng) for _ in range(looked_at))
    for sample in chain(islice(near_default(space), 1, looked_at), at_random):
        point = space.point(sample)
        if point is not None and point.text not in texts:
            texts.add(point.text)
            yield point


@dataclass(frozen=True)
class _Made:
    """Builds the candidates of one task and adds them to a bundle."""

    task: Task
    builder: KernelBuilder
    space_name: str
    wanted: int

    def added(self, writer: BundleWriter, points: Iterator[Point]) -> tuple[int, int]:
        """Add the task; gives the number of candidates, and of those that could not be built."""
        (default,) = self.builder.built(self.task, [None])
        if not default.kernel:
            reason = default.error.split("\n", 1)[0]
            raise UserError(f"{self.task.name} cannot be built", reason=reason)
        found, failed = list[tuple[bytes, dict[str, Any]]](), 0
        while chosen := list(islice(points, self.wanted - len(found))):
            built = self._built(chosen)
            found, failed = found + built, failed + len(chosen) - len(built)
        if found:
            writer.add(self.task.name, trial_task(self.task), default.kernel, found)
        return len(found), failed

    def _built(self, points: Sequence[Point]) -> list[tuple[bytes, dict[str, Any]]]:
        """The kernels that could be built, each with its record, yet without a measurement."""
        answers = self.builder.built(self.task, [Recorded(p.trace).key for p in points])
        return [
            (answer.kernel, self._record(point))
            for answer, point in zip(answers, points, strict=True)
            if answer.kernel
        ]

    def _record(self, point: Point) -> dict[str, Any]:
        record = record_of(self.task, point, self.space_name, Measured((1.0,)), "trial")
        return json.loads(record.line())
