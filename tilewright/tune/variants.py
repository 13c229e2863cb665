"""Choices above loops: variants of the whole model, each with one decision taken otherwise.

What passes over the graph have decided (`graph.Decision`) is flipped one by one. A variant runs in
turns with the model as it is; what counts are the kernels that differ. A variant that is faster by
more than noise, as kernels must be, and whose model is not slower as a whole, wins: it is part of
the model that the next decisions are measured in.
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

#: The part of a search's time that decisions take at most.
_SHARE: Final = 1 / 3


@dataclass(frozen=True)
class Varied:
    """What has become of a model: with the options that win, and what each has gained."""

    model: NativeModel
    table: DecisionTable = field(default_factory=dict[str, Mapping[str, str]])
    decisions: tuple[DecisionSummary, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False

    def summary(self, settings: Settings) -> Summary:
        """What is told of it where nothing else was searched."""
        records = text_path(settings.records)
        return Summary((), self.seconds, self.interrupted, records, self.decisions)


def search_variants(
    model: NativeModel,
    compiled: Callable[[DecisionTable], NativeModel],
    turns: InTurns,
    settings: Settings,
) -> Varied:
    """Search for better decisions about a model for a part of the time.

    An interrupt ends it as the clock does.
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

    #: The model by the given options for keys of decisions.
    compiled: Callable[[Mapping[str, str]], NativeModel]
    model: NativeModel
    turns: InTurns
    file: RecordFile
    watcher: Watcher
    #: When to stop, by the clock and by options of each decision.
    deadline: float
    trials: int | None = None
    #: The options that win so far, and their records.
    taken: dict[str, str] = field(default_factory=dict[str, str])
    winners: dict[str, Record] = field(default_factory=dict[str, Record])
    #: Decisions of which there is something to tell, and the keys of those that are done with.
    _told: dict[str, Decision] = field(default_factory=dict[str, Decision])
    _done: set[str] = field(default_factory=set[str])
    #: Options of which there are records: keys and names.
    _known: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    counts: Counter[str] = field(default_factory=Counter[str])

    def resume(self, records: Iterable[Record]) -> None:
        """Take up what earlier searches have measured, by these sources."""
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
        """Measure decisions until the time is up: those first that are about most of a run."""
        while time.monotonic() < self.deadline and (decision := self._next()):
            self._done.add(decision.key)
            before = self.taken.get(decision.key)
            for option in self._untried(decision):
                if time.monotonic() >= self.deadline:
                    break
                self._try(decision, option)
            if self.taken.get(decision.key) != before:
                # There may be other decisions now.
                self.model = self.compiled(self.taken)

    def _next(self) -> Decision | None:
        left = [d for d in self.model.decisions if d.key not in self._done]
        return max(left, key=lambda d: d.cycles, default=None)

    def summaries(self) -> tuple[DecisionSummary, ...]:
        """What was gained, decision by decision."""
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
        """Measure an option shortly, and at length where that is promising."""
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
            # Times are those of all calls in a run.
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
