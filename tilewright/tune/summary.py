"""The gains of a search, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.support.timing import format_seconds
from tilewright.tune.allocation import Search


@dataclass(frozen=True)
class TaskSummary:
    """One kernel before and after."""

    key: str
    name: str
    calls: int
    #: Seconds of all calls in a run of the model.
    before: float
    after: float
    trials: int
    failures: dict[str, int]
    #: The reason why its search ended; empty if the time was up.
    ended: str

    @property
    def gain(self) -> float:
        return self.before / self.after if self.after else 1.0


@dataclass(frozen=True)
class DecisionSummary:
    """A decision of a graph pass, by default and now."""

    key: str
    name: str
    default: str
    taken: str
    #: Seconds per run in the kernels that differ; 0 if the default stays.
    before: float
    after: float
    trials: int

    @property
    def gain(self) -> float:
        return self.before / self.after if self.after else 1.0

    @property
    def saved(self) -> float:
        return self.before - self.after


@dataclass(frozen=True, repr=False)
class Summary:
    """All kernels of a model, most expensive first; `str` gives a table."""

    tasks: tuple[TaskSummary, ...]
    seconds: float
    interrupted: bool
    records: str
    decisions: tuple[DecisionSummary, ...] = ()

    @property
    def trials(self) -> int:
        return sum(t.trials for t in self.tasks)

    @property
    def variants(self) -> int:
        """The number of variants of the whole model that were measured."""
        return sum(d.trials for d in self.decisions)

    @property
    def times(self) -> tuple[float, float]:
        """Seconds of all kernels in a run, before and after."""
        before, after = (sum(getattr(t, n) for t in self.tasks) for n in ("before", "after"))
        return before + sum(d.saved for d in self.decisions), after

    @property
    def failures(self) -> dict[str, int]:
        """Candidates that could not be measured, by reason."""
        found: dict[str, int] = {}
        for task in self.tasks:
            for reason, count in task.failures.items():
                found[reason] = found.get(reason, 0) + count
        return found

    @property
    def gain(self) -> float:
        """The speedup of all kernels together, an estimate of the model's."""
        before, after = self.times
        return before / after if after else 1.0

    header = ("kernel", "calls", "before", "after", "gain", "trials")

    @staticmethod
    def cells(t: TaskSummary) -> tuple[str, ...]:
        """A row of the table."""
        times = (format_seconds(t.before), format_seconds(t.after))
        return (t.name[:48], str(t.calls), *times, f"×{t.gain:.2f}", str(t.trials))

    @property
    def decision_lines(self) -> list[str]:
        """The decisions about the graph that differ from the default."""
        return [
            f"{d.name}: {d.taken} instead of {d.default} (×{d.gain:.2f})"
            for d in self.decisions
            if d.taken != d.default
        ]

    def __str__(self) -> str:
        rows = [self.header, *(self.cells(t) for t in self.tasks)]
        lines = [f"{name:48} " + " ".join(f"{c:>9}" for c in rest) for name, *rest in rows]
        return "\n".join([*self.decision_lines, *lines, self.headline])

    @property
    def headline(self) -> str:
        """A summary in one line."""
        before, after = self.times
        variants = f"{self.variants} variants and " if self.variants else ""
        failed = ", ".join(f"{count} {reason}" for reason, count in self.failures.items())
        times = f"{format_seconds(after)} instead of {format_seconds(before)}"
        return (
            f"{'interrupted: ' if self.interrupted else ''}{variants}{self.trials} trials in "
            f"{self.seconds:.0f} s{f' ({failed})' if failed else ''}; kernels take "
            f"{times} of a run (×{self.gain:.2f})"
        )

    def __repr__(self) -> str:
        return f"<{self.headline}>"


def summary_of(
    searches: Sequence[Search],
    seconds: float,
    interrupted: bool,
    records: str,
    decisions: tuple[DecisionSummary, ...] = (),
) -> Summary:
    """The gains of searches, and of decisions before them."""
    rows = [
        TaskSummary(
            s.task.key,
            s.task.name,
            s.task.calls,
            s.before,
            s.seconds,
            s.trials,
            dict(s.failures),
            s.ended,
        )
        for s in searches
    ]
    return Summary(tuple(rows), seconds, interrupted, records, decisions)
