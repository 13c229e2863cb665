"""The progress display of a search: nothing, lines, or a live table if `rich` is installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from tilewright.support.timing import format_seconds
from tilewright.tune.allocation import Search
from tilewright.tune.records.record import Record


class Watcher(Protocol):
    """Notified of a search's progress."""

    def variant(self, record: Record) -> None: ...

    def begin(self, searches: Sequence[Search], deadline: float) -> None: ...

    def trial(self, search: Search, record: Record) -> None: ...

    def verdict(self, search: Search, record: Record) -> None: ...

    def batch(self, search: Search, searches: Sequence[Search]) -> None: ...

    def end(self) -> None: ...


class Quiet:
    """Shows nothing."""

    def variant(self, record: Record) -> None:
        del record

    def begin(self, searches: Sequence[Search], deadline: float) -> None:
        del searches, deadline

    def trial(self, search: Search, record: Record) -> None:
        del search, record

    def verdict(self, search: Search, record: Record) -> None:
        del search, record

    def batch(self, search: Search, searches: Sequence[Search]) -> None:
        del search, searches

    def end(self) -> None:
        pass


class Lines(Quiet):
    """A line for every batch, and for every variant of the model."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._deadline = 0.0

    def variant(self, record: Record) -> None:
        self._say(_variant(record))

    def begin(self, searches: Sequence[Search], deadline: float) -> None:
        self._deadline = deadline
        self._say(f"{len(searches)} tasks, {format_seconds(_total(searches))} of kernels in a run")

    def batch(self, search: Search, searches: Sequence[Search]) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        self._say(
            f"{search.task.name[:44]:44} {_speed(search):>14}  ×{1 / search.ratio:.2f}"
            f"  {search.trials} trials{_failures(search)}"
            f"  model {format_seconds(_total(searches))}  {left:.0f} s left"
        )

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Live(Quiet):
    """A table on a terminal, redrawn after every trial."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as LiveDisplay

        self._display = LiveDisplay(console=Console(stderr=True), transient=True)
        self._searches: Sequence[Search] = ()
        self._deadline = 0.0

    def variant(self, record: Record) -> None:
        self._display.console.print(_variant(record), highlight=False, markup=False)

    def begin(self, searches: Sequence[Search], deadline: float) -> None:
        self._searches, self._deadline = searches, deadline
        self._display.start()
        self._draw(None)

    def trial(self, search: Search, record: Record) -> None:
        del record
        self._draw(search)

    def verdict(self, search: Search, record: Record) -> None:
        del record
        self._draw(search)

    def end(self) -> None:
        self._display.stop()

    def _draw(self, current: Search | None) -> None:
        from rich.table import Table

        left = max(0.0, self._deadline - time.monotonic())
        before = sum(s.before for s in self._searches)
        title = f"model {format_seconds(before)} → {format_seconds(_total(self._searches))}"
        table = Table(title=f"{title}, {left:.0f} s left")
        for name in ("task", "calls", "best", "gain", "trials", "failures"):
            table.add_column(name)
        for search in sorted(self._searches, key=lambda s: -s.seconds)[:12]:
            table.add_row(*_cells(search), style="bold" if search is current else "")
        self._display.update(table, refresh=True)


def watcher_for(progress: bool | None) -> Watcher:
    """The display that suits the terminal; None: progress if stderr is a terminal."""
    watched = sys.stderr.isatty()
    if progress is False or (progress is None and not watched):
        return Quiet()
    try:
        return Live() if watched else Lines()
    except ImportError:
        return Lines()


def _variant(record: Record) -> str:
    taken = ", ".join(record.values.values())
    found = f"×{1 / record.ratio:.2f}" if record.ratio else record.failure or ""
    judged = "" if record.kind == "trial" else "  wins" if record.wins else "  does not win"
    return f"{record.name}: {taken}  {found}{judged}"


def _cells(search: Search) -> tuple[Any, ...]:
    failed = ", ".join(f"{n} {why}" for why, n in search.failures.items())
    gain = f"×{1 / search.ratio:.2f}"
    task = search.task
    return (task.name[:40], str(task.calls), _speed(search), gain, str(search.trials), failed)


def _speed(search: Search) -> str:
    task = search.task
    if not task.flops or not search.seconds:
        return format_seconds(search.seconds)
    return f"{task.flops * task.calls / search.seconds / 1e9:.1f} GFLOP/s"


def _failures(search: Search) -> str:
    failed = ", ".join(f"{n} {why}" for why, n in search.failures.items())
    return f" ({failed})" if failed else ""


def _total(searches: Sequence[Search]) -> float:
    return sum(s.seconds for s in searches)
