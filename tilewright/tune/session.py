"""A search: batch after batch of candidates is made, built, measured and recorded.

choose a task → its tuner proposes samples → schedules that are legal and new → built in parallel →
measured one by one against the default → recorded → the leader is measured once more, at length,
and wins if it is faster by more than noise → in the end, winners that are not faster in the model
are dropped
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Final

from tilewright.runtime import LONG, SHORT, Measured, TrialError
from tilewright.schedule import Recorded
from tilewright.tune.allocation import PATIENCE, Floor, Search, most_promising
from tilewright.tune.features import COUNT as FEATURES
from tilewright.tune.in_place import InPlace
from tilewright.tune.measuring.building import KernelBuilder
from tilewright.tune.measuring.measurer import Measurer
from tilewright.tune.progress import Watcher
from tilewright.tune.recording import record_of
from tilewright.tune.records.best import schedulers_of, winning
from tilewright.tune.records.file import RecordFile, read_records
from tilewright.tune.records.record import Record
from tilewright.tune.spaces.space import Point, Sample
from tilewright.tune.tuners.tuner import FAILED, Example, Tuner

#: Candidates that are built and measured before the tuner is asked again; and the minimum for each
#: measuring machine.
_BATCH: Final = 8
_FOR_EACH: Final = 8
#: Most samples tried to find these.
_LOOKED_AT: Final = 40
#: Most samples that a tuner may propose without a new one among them.
_NAMED: Final = 2000


@dataclass
class Session:
    """Searches for better schedules of tasks until it is told to stop."""

    searches: Sequence[Search]
    tuner: Tuner
    builder: KernelBuilder
    measurer: Measurer
    file: RecordFile
    watcher: Watcher
    floor: Floor
    rng: Random
    #: When to stop, by time and by trials of each task.
    deadline: float
    trials: int | None = None
    space_name: str = "rules"
    #: Measurements of other tasks, for cost models.
    examples: list[Example] = field(default_factory=list[Example])
    #: The first samples: those that were good elsewhere.
    seeds: Callable[[Search], Sequence[Sample]] = lambda search: ()
    _begun: Search | None = None

    def run(self) -> None:
        """Run batches until the time is up or no search is left."""
        while self._has_time() and (search := most_promising(self.searches, self.floor)):
            self._batch(search)
            self.watcher.batch(search, self.searches)

    def confirm(self, in_place: InPlace) -> None:
        """Drop winners that are not faster inside the model."""
        winners = {s.task.key: s for s in self.searches if s.winner is not None}
        found = schedulers_of(s.winner for s in winners.values() if s.winner is not None)
        if not found:
            return
        # Releases its devices for `in_place`.
        self.measurer.close()
        try:
            ratios = in_place.ratios(found)
        except TrialError as error:
            warnings.warn(f"winners were not measured in the model: {error}", stacklevel=2)
            return
        for record in winning(read_records([self.file.path])):
            search = winners.get(record.task)
            ratio = ratios.get(record.task)
            is_ours = search is not None and record.target == search.task.target.machine
            if search is None or ratio is None or not is_ours or record.space != self.space_name:
                continue
            if ratio >= 1:
                # Also overrides earlier wins that were not measured in the model.
                self.file.add(replace(record, wins=False, at=time.time()))
                search.winner, search.ratio = None, 1.0
            else:
                search.ratio = ratio

    def close(self) -> None:
        """End all processes and close the file."""
        self.builder.close()
        self.measurer.close()
        self.file.close()

    def _has_time(self) -> bool:
        return time.monotonic() < self.deadline

    def _batch(self, search: Search) -> None:
        if not self._begin(search):
            return
        points = self._next_points(search)
        if not points:
            search.ended = search.ended or "no more samples are left to measure"
            return
        before = search.ratio
        with closing(self._outcomes(search, points)) as outcomes:
            for point, kernel, measured in outcomes:
                self._learn(search, point, measured)
                if measured.is_promising(search.ratio):
                    self._judge(search, point, kernel)
                if not self._has_time():
                    break
        self._tire(search, gained=search.ratio < before)

    def _outcomes(
        self, search: Search, points: Sequence[Point]
    ) -> Generator[tuple[Point, bytes, Measured]]:
        """The results of candidates, with their kernels, as they are built and measured."""
        keys = [Recorded(p.trace).key for p in points]
        building = self.builder.building(search.task, keys)
        # Without parallel measuring, build all first: compilers would disturb the measurements.
        built = building if self.measurer.width else sorted(building)
        order, failed = list[tuple[int, bytes]](), list[tuple[int, str]]()

        def kernels() -> Iterator[bytes]:
            for number, answer in built:
                if answer.kernel:
                    order.append((number, answer.kernel))
                    yield answer.kernel
                else:
                    failed.append((number, answer.error.split("\n", 1)[0]))

        for place, measured in self.measurer.measure(kernels(), SHORT):
            number, kernel = order[place]
            yield points[number], kernel, measured
        for number, error in failed:
            yield points[number], b"", Measured(failure="build", reason=error)

    def _begin(self, search: Search) -> bool:
        """Whether the default schedule of a task runs, as the baseline."""
        if not search.reference:
            (answer,) = self.builder.built(search.task, [None])
            if not answer.kernel:
                search.ended = f"it cannot be built: {answer.error}"
                return False
            search.reference = answer.kernel
        if self._begun is not search:
            found = self.measurer.begin(search.task, search.reference)
            self._begun = search
            search.ended = f"it cannot be measured: {found.reason}" if found.failure else ""
            search.before = search.before or found.seconds * search.task.calls
        return not search.ended

    def _tire(self, search: Search, *, gained: bool) -> None:
        search.stale = 0 if gained else search.stale + 1
        if search.stale >= PATIENCE:
            search.ended = "nothing better was found for long"

    # ---- candidates -----------------------------------------------------------------------------

    def _next_points(self, search: Search) -> list[Point]:
        """Legal schedules that have not been measured, in the tuner's order."""
        wanted = max(_BATCH, _FOR_EACH * self.measurer.width)
        if self.trials is not None:
            wanted = min(wanted, self.trials - len(search.known.ratios))
        if wanted <= 0:
            search.ended = "it had all of its trials"
            return []
        if search.space.holds_default:
            search.texts.add(search.space.default.text)
        found: list[Point] = []
        for sample in islice(self._new_samples(search), max(_LOOKED_AT, 5 * wanted)):
            point = search.space.point(sample)
            if point is not None and self._is_new(search, point):
                search.texts.add(point.text)
                found.append(point)
            if len(found) >= wanted or not self._has_time():
                break
        return found

    def _new_samples(self, search: Search) -> Iterator[Sample]:
        """The tuner's new samples; ends after too many known ones."""
        most = _NAMED + 2 * len(search.looked_at) + 2 * len(search.known.ratios)
        for sample in islice(self._samples(search), most):
            if sample not in search.looked_at and sample not in search.known.ratios:
                search.looked_at.add(sample)
                yield sample

    def _is_new(self, search: Search, point: Point) -> bool:
        return point.sample not in search.known.ratios and point.text not in search.texts

    def _samples(self, search: Search) -> Iterator[Sample]:
        yield from self.seeds(search)
        search.known.examples = self.examples
        yield from self.tuner.samples(search.space, search.known, self.rng)

    # ---- results ---------------------------------------------------------------------------------

    def _learn(self, search: Search, point: Point, measured: Measured) -> None:
        """Record a trial, and add it to the task's history. Lost candidates are skipped."""
        if measured.failure == "lost":
            search.failures["lost"] = search.failures.get("lost", 0) + 1
            return
        record = record_of(search.task, point, self.space_name, measured, "trial")
        self.file.add(record)
        search.trials += 1
        if measured.failure:
            search.failures[measured.failure] = search.failures.get(measured.failure, 0) + 1
        learn_from(search, record, self.examples)
        self.watcher.trial(search, record)

    def _judge(self, search: Search, point: Point, kernel: bytes) -> None:
        """Measure a leader at length: it wins if 3 of 4 rounds beat the best by the margin."""
        ((_, measured),) = self.measurer.measure([kernel], LONG, early=False)
        if measured.failure == "lost":
            return
        wins = measured.wins(search.ratio)
        record = record_of(search.task, point, self.space_name, measured, "verdict", wins=wins)
        self.file.add(record)
        if wins:
            search.winner, search.ratio = record, measured.ratio
        elif measured.failure is None:
            # The short trial's result was noise.
            search.known.ratios[point.sample] = measured.ratio
        self.watcher.verdict(search, record)


def learn_from(search: Search, record: Record, examples: list[Example]) -> None:
    """Add a record to the history of its task."""
    ratio = FAILED if record.ratio is None else record.ratio
    search.known.ratios[Sample.of(record.sample)] = ratio
    if len(record.features) == FEATURES:
        examples.append(Example(record.task, record.features, ratio))
