"""What a search has gained, task by task."""

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
    #: Of all calls in a run of the model.
    before: float
    after: float
    trials: int
    failures: dict[str, int]
    #: Why the search of it ended; empty where the time was up.
    ended: str

    @property
    def gain(self) -> float:
        return self.before / self.after if self.after else 1.0


@dataclass(frozen=True, repr=False)
class Summary:
    """All kernels of a model, those that took most first; `str` gives a table."""

    tasks: tuple[TaskSummary, ...]
    seconds: float
    interrupted: bool
    records: str

    @property
    def trials(self) -> int:
        return sum(t.trials for t in self.tasks)

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
        """The time of all kernels before, in what it is after; an estimate for the model."""
        after = sum(t.after for t in self.tasks)
        return sum(t.before for t in self.tasks) / after if after else 1.0

    header = ("kernel", "calls", "before", "after", "gain", "trials")

    @staticmethod
    def cells(t: TaskSummary) -> tuple[str, ...]:
        """A row of the table."""
        times = (format_seconds(t.before), format_seconds(t.after))
        return (t.name[:48], str(t.calls), *times, f"×{t.gain:.2f}", str(t.trials))

    def __str__(self) -> str:
        rows = [self.header, *(self.cells(t) for t in self.tasks)]
        lines = [f"{name:48} " + " ".join(f"{c:>9}" for c in rest) for name, *rest in rows]
        return "\n".join([*lines, self.headline])

    @property
    def headline(self) -> str:
        """All of it in one line."""
        before, after = (sum(getattr(t, n) for t in self.tasks) for n in ("before", "after"))
        failed = ", ".join(f"{count} {reason}" for reason, count in self.failures.items())
        times = f"{format_seconds(after)} instead of {format_seconds(before)}"
        return (
            f"{'interrupted: ' if self.interrupted else ''}{self.trials} trials in "
            f"{self.seconds:.0f} s{f' ({failed})' if failed else ''}; kernels take "
            f"{times} of a run (×{self.gain:.2f})"
        )

    def __repr__(self) -> str:
        return f"<{self.headline}>"


def summary_of(
    searches: Sequence[Search], seconds: float, interrupted: bool, records: str
) -> Summary:
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
    return Summary(tuple(rows), seconds, interrupted, records)
