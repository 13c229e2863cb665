"""Measures a bundle: every candidate against its default, and the leaders with more rounds.

Each measurement is a record, written to the file before the next one begins: a run that was ended
early resumes where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tilewright.runtime.devices import why_no_device
from tilewright.runtime.trials.bundle import Bundle, BundledTask
from tilewright.runtime.trials.measured import LONG, SHORT, Measured, positive
from tilewright.runtime.trials.process import TrialProcess
from tilewright.runtime.trials.within import TrialModel
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath, text_path
from tilewright.support.lines import LineFile, lines_of

#: Candidates of a task that are measured with more rounds.
_LEADERS: Final = 3


class BundledCandidate(NamedTuple):
    """A candidate, and what is known of it."""

    kernel: str
    record: Mapping[str, Any]
    #: Its time relative to the default's in a trial; None if it failed.
    ratio: float | None


@dataclass
class BundledOutcome:
    """The outcome of a task."""

    name: str
    calls: int
    #: Seconds of a call of the default; 0 if nothing was measured in this run.
    seconds: float = 0.0
    #: The winner's time relative to the default's.
    ratio: float = 1.0
    trials: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    #: The reason why it could not be measured.
    error: str = ""


def measure_bundle(
    path: AnyPath,
    records: AnyPath,
    seconds: float = float("inf"),
    on_result: Callable[[BundledOutcome], None] = lambda outcome: None,
    within: TrialModel | None = None,
) -> list[BundledOutcome]:
    """Measure what is not in `records` yet, within `seconds`; `on_result` is called with each
    outcome. Leaders are timed `within` a model if one is given, alone otherwise."""
    process, end = TrialProcess(), time.monotonic() + seconds
    found = list[BundledOutcome]()
    with Bundle(path) as bundle:
        if reason := why_no_device(bundle.target.text):
            raise UserError(f"{bundle.path} cannot be measured here", reason=reason)
        known, file = KnownCandidates.read(records), LineFile(records)
        try:
            for task in bundle.tasks():
                if time.monotonic() >= end:
                    break
                measuring = _Measuring(bundle, task, process, file, known, end, within)
                found.append(measuring.outcome())
                on_result(found[-1])
        finally:
            process.close()
            file.close()
    return found


class KnownCandidates:
    """The candidates in records: ratios of trials, and of verdicts."""

    def __init__(self) -> None:
        self.trials: dict[str, float | None] = {}
        self.verdicts: dict[str, float | None] = {}

    @staticmethod
    def read(path: AnyPath) -> KnownCandidates:
        known, file = KnownCandidates(), text_path(path)
        for line in lines_of(file) if Path(file).exists() else ():
            try:
                record = json.loads(line)
                known.add(record, record.get("kind") == "verdict")
            except (
                ValueError,
                TypeError,
                LookupError,
                AttributeError,
                RecursionError,
                OverflowError,
            ):
                continue
        return known

    def add(self, record: Mapping[str, Any], is_verdict: bool) -> None:
        ratio = None if record["ratio"] is None else positive(record["ratio"])
        key = key_of(record)
        if is_verdict:
            self.verdicts[key] = ratio if record["wins"] else None
        else:
            self.trials[key] = ratio


def key_of(record: Mapping[str, Any]) -> str:
    """Identifies a candidate."""
    parts = [record[name] for name in ("task", "target", "space", "sample")]
    return json.dumps(parts, sort_keys=True)


class _Measuring:
    """One task of a bundle, and what is known of its candidates."""

    def __init__(
        self,
        bundle: Bundle,
        task: BundledTask,
        process: TrialProcess,
        file: LineFile,
        known: KnownCandidates,
        end: float,
        within: TrialModel | None,
    ) -> None:
        self._bundle, self._task, self._process = bundle, task, process
        self._file, self._known, self._end = file, known, end
        self._within = within if within is not None and within.has(task.name) else None
        calls = [r.get("calls", 1) for _, r in task.candidates]
        self._outcome = BundledOutcome(task.name, int(calls[0]) if calls else 1)
        self._is_begun = False

    def outcome(self) -> BundledOutcome:
        """Measure the rest of it."""
        for kernel, record in self._task.candidates:
            if key_of(record) not in self._known.trials and self._can_go_on():
                self._trial(kernel, record)
        for leader in self._leaders():
            won = self._known.verdicts.get(key_of(leader.record))
            if key_of(leader.record) not in self._known.verdicts and self._can_go_on():
                won = self._verdict(leader)
            self._outcome.ratio = min(self._outcome.ratio, won or 1.0)
        return self._outcome

    def _can_go_on(self) -> bool:
        """Whether there is time left, and the default runs."""
        if self._outcome.error or time.monotonic() >= self._end:
            return False
        if not self._is_begun:
            default = self._bundle.kernel(self._task.default)
            found = self._process.begin(self._task.task, default)
            self._outcome.error, self._outcome.seconds = found.reason, found.seconds
            self._is_begun = True
        return not self._outcome.error

    def _trial(self, kernel: str, record: Mapping[str, Any]) -> None:
        measured = self._process.measure(self._bundle.kernel(kernel), SHORT, early=True)
        self._write(record, measured, is_verdict=False)
        self._outcome.trials += 1
        if measured.failure:
            failures = self._outcome.failures
            failures[measured.failure] = failures.get(measured.failure, 0) + 1

    def _leaders(self) -> list[BundledCandidate]:
        ratios = self._known.trials
        listed = [BundledCandidate(k, r, ratios.get(key_of(r))) for k, r in self._task.candidates]
        good = [c for c in listed if c.ratio is not None]
        return sorted(good, key=lambda c: c.ratio or 0.0)[:_LEADERS]

    def _verdict(self, leader: BundledCandidate) -> float | None:
        """The ratio of a leader that beats the best so far by more than noise; else None."""
        trial = Measured((leader.ratio or 0.0,))
        # Times of calls alone are not comparable with a model's gain.
        if not trial.is_promising(self._outcome.ratio if self._within is None else 1.0):
            return None
        measured = self._at_length(self._bundle.kernel(leader.kernel))
        wins = measured.wins(self._outcome.ratio)
        self._write(leader.record, measured, is_verdict=True, wins=wins)
        return measured.ratio if wins else None

    def _at_length(self, code: bytes) -> Measured:
        if self._within is None:
            return self._process.measure(code, LONG, early=False)
        return self._within.compared(code, self._outcome.calls * self._outcome.seconds)

    def _write(
        self, record: Mapping[str, Any], measured: Measured, *, is_verdict: bool, wins: bool = False
    ) -> None:
        done = {
            **record,
            "kind": "verdict" if is_verdict else "trial",
            "ratio": None if measured.failure else measured.ratio,
            "seconds": measured.seconds,
            "reference": measured.reference,
            "wins": wins,
            "failure": measured.failure,
            "reason": measured.reason,
            "at": time.time(),
        }
        text = json.dumps(done, separators=(",", ":"), allow_nan=False)
        self._file.add_line(text.encode() + b"\n")
        self._known.add(done, is_verdict)
