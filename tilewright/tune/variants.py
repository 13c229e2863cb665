"""Tuning above loops: variants of the whole model, each with one decision changed.

The decisions of graph passes (`graph.Decision`) are changed one by one. Runs of a variant alternate
with runs of the current model, and the kernels that differ are compared. A variant wins if these
are faster by more than noise, as for kernels, and its model is not slower as a whole: it is then
part of the model against which the next decisions are measured.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tilewright import __version__
from tilewright.graph import Decision, DecisionTable
from tilewright.models.native import NativeModel
from tilewright.runtime import LONG, SHORT, Measured
from tilewright.support.errors import TilewrightError
from tilewright.support.files import text_path
from tilewright.tune.in_turns import InTurns
from tilewright.tune.progress import Watcher, watcher_for
from tilewright.tune.recording import sources_version
from tilewright.tune.records.best import best_records, option_of
from tilewright.tune.records.file import RecordFile, read_records
from tilewright.tune.records.record import DECISIONS, Kind, Record
from tilewright.tune.settings import Settings
from tilewright.tune.summary import DecisionSummary, Summary

#: The share of a search's time for decisions.
_SHARE: Final = 1 / 3


@dataclass(frozen=True)
class Varied:
    """The model with the winning options, and the gain of each decision."""

    model: NativeModel
    table: DecisionTable = field(default_factory=dict[str, Mapping[str, str]])
    decisions: tuple[DecisionSummary, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False

    def summary(self, settings: Settings) -> Summary:
        """The summary if nothing else was searched."""
        records = text_path(settings.records)
        return Summary((), self.seconds, self.interrupted, records, self.decisions)


def search_variants(
    model: NativeModel,
    compiled: Callable[[DecisionTable], NativeModel],
    turns: InTurns,
    settings: Settings,
) -> Varied:
    """Search for better decisions about a model for a part of the time.

    An interrupt ends it like the deadline.
    """
    if not model.decisions:
        return Varied(model)
    start, target = time.monotonic(), model.target.machine
    known = read_records([settings.records]) if os.path.exists(settings.records) else []
    file, interrupted = RecordFile(settings.records), False
    found = Variants(
        lambda taken: compiled({target: taken}),
        model,
        turns,
        file,
        watcher_for(settings.progress),
        start + settings.budget * _SHARE,
        settings.trials,
    )
    try:
        found.resume(known)
        found.run()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        file.close()
    spent = time.monotonic() - start
    return Varied(found.model, {target: found.taken}, found.summaries(), spent, interrupted)


@dataclass
class Variants:
    """The search for better decisions of passes."""

    #: Compiles the model with these options, by decision key.
    compiled: Callable[[Mapping[str, str]], NativeModel]
    model: NativeModel
    turns: InTurns
    file: RecordFile
    watcher: Watcher
    #: When to stop, by time and by options of each decision.
    deadline: float
    trials: int | None = None
    #: The winning options so far, and their records.
    taken: dict[str, str] = field(default_factory=dict[str, str])
    winners: dict[str, Record] = field(default_factory=dict[str, Record])
    #: Decisions to report, and the keys of those that are finished.
    _told: dict[str, Decision] = field(default_factory=dict[str, Decision])
    _done: set[str] = field(default_factory=set[str])
    #: Options with records, as (decision key, option).
    _known: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    counts: Counter[str] = field(default_factory=Counter[str])

    def resume(self, records: Iterable[Record]) -> None:
        """Restore the results of earlier searches with the same sources."""
        target, version = self.model.target.machine, sources_version()
        own = [r for r in records if r.space == DECISIONS and r.target == target and r.values]
        own = [r for r in own if r.versions.get("sources") == version]
        self._known.update((r.task, option_of(r)) for r in own)
        found = best_records(own).get(target, {})
        if not found:
            return
        self.model = self.compiled({key: option_of(r) for key, r in found.items()})
        for decision in self.model.decisions:
            if decision.key in found and decision.taken == option_of(found[decision.key]):
                self._take(decision, found[decision.key])

    def run(self) -> None:
        """Measure decisions until the time is up, those with the largest share of a run first."""
        while time.monotonic() < self.deadline and (decision := self._next()):
            self._done.add(decision.key)
            before = self.taken.get(decision.key)
            for option in self._untried(decision):
                if time.monotonic() >= self.deadline:
                    break
                self._try(decision, option)
            if self.taken.get(decision.key) != before:
                # The new model may have other decisions.
                self.model = self.compiled(self.taken)

    def _next(self) -> Decision | None:
        left = [d for d in self.model.decisions if d.key not in self._done]
        return max(left, key=lambda d: d.cycles, default=None)

    def summaries(self) -> tuple[DecisionSummary, ...]:
        """The gain of each decision."""
        return tuple(map(self._summary, self._told.values()))

    def _summary(self, decision: Decision) -> DecisionSummary:
        record = self.winners.get(decision.key)
        before, ratio = (0.0, 1.0) if record is None else (record.reference, record.ratio or 1.0)
        return DecisionSummary(
            decision.key,
            str(decision),
            decision.default,
            decision.default if record is None else option_of(record),
            before,
            before * ratio,
            self.counts[decision.key],
        )

    def _untried(self, decision: Decision) -> list[str]:
        untried = [o for o in decision.others if (decision.key, o) not in self._known]
        return untried if self.trials is None else untried[: self.trials]

    def _try(self, decision: Decision, option: str) -> None:
        """Measure an option briefly, and at length if that is promising."""
        best = self.winners[decision.key].ratio if decision.key in self.winners else None
        default = {k: v for k, v in self.taken.items() if k != decision.key}
        self.counts[decision.key] += 1
        self._told[decision.key] = decision
        try:
            variant = self.compiled({**default, decision.key: option})
            model = self.model if best is None else self.compiled(default)
        except TilewrightError as error:
            measured = Measured(failure="build", reason=str(error).split("\n", 1)[0])
            self._record(decision, option, measured, "trial")
            return
        measured = self.turns.beside(model, variant, SHORT, early=True)
        self._record(decision, option, measured, "trial")
        if not measured.is_promising(best or 1.0):
            return
        measured = self.turns.beside(model, variant, LONG, early=False)
        wins = measured.wins(best or 1.0)
        record = self._record(decision, option, measured, "verdict", wins=wins)
        if wins:
            self._take(decision, record)

    def _take(self, decision: Decision, record: Record) -> None:
        self._told[decision.key] = decision
        self.taken[decision.key] = option_of(record)
        self.winners[decision.key] = record

    def _record(
        self, decision: Decision, option: str, measured: Measured, kind: Kind, *, wins: bool = False
    ) -> Record:
        record = Record(
            task=decision.key,
            name=str(decision),
            # Times are totals of a run.
            calls=1,
            target=self.model.target.machine,
            kind=kind,
            space=DECISIONS,
            sample={decision.made_by: decision.options.index(option)},
            values={decision.made_by: option},
            ratio=None if measured.failure else measured.ratio,
            seconds=measured.seconds,
            reference=measured.reference,
            wins=wins,
            failure=measured.failure,
            reason=measured.reason,
            at=time.time(),
            versions={"tilewright": __version__, "sources": sources_version()},
        )
        self.file.add(record)
        self.watcher.variant(record)
        return record
