"""A report of records as one HTML page: a table of before and after, and the searches' course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tilewright.support.files import AnyPath, replacing
from tilewright.support.timing import format_seconds
from tilewright.tune.records.best import best_records
from tilewright.tune.records.file import read_records
from tilewright.tune.records.record import DECISIONS, Record

_WIDTH, _HEIGHT, _MARGIN = 320, 120, 28
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; font-family: ui-monospace, monospace; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: 12px; overflow-wrap: anywhere; }
.curve { fill: none; stroke: #0a6; stroke-width: 2; } .trial { fill: #888; }
.one { stroke: #c33; stroke-dasharray: 4 3; } text { font-size: 10px; fill: #555; }
"""


def write_report(records: AnyPath | Iterable[AnyPath], path: AnyPath) -> None:
    """Write the page for one or more files of records."""
    with replacing(path) as file:
        file.write(page_of(read_records(records)).encode())


def page_of(records: Sequence[Record]) -> str:
    """The page, self-contained."""
    tasks: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        tasks.setdefault((record.target, record.task), []).append(record)
    winners = best_records(records)
    rows = [_Row(found, winners.get(t, {}).get(key)) for (t, key), found in tasks.items()]
    rows.sort(key=lambda r: -r.saved)
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8><title>Tuning</title>",
            f"<style>{_STYLE}</style><h1>Tuning</h1>",
            f"<p>{escape(_headline(records, rows))}</p>",
            *_table(rows),
            "<h2>How the searches went</h2>",
            "<p>Dots are trials, the line is the best so far: times in that of the default.</p>",
            "<div class=curves>",
            *(_figure(r) for r in rows if r.trials),
            "</div></html>",
        ]
    )


class _Row:
    """All measurements of one task on one machine."""

    def __init__(self, records: Sequence[Record], winner: Record | None) -> None:
        self.name, self.target = records[0].name, records[0].target
        self.trials = [r for r in records if r.kind == "trial"]
        self.calls = max(r.calls for r in records)
        self.winner = winner
        good = [r.reference for r in records if r.reference > 0]
        self.before = min(good, default=0.0)
        self.ratio = winner.ratio if winner is not None and winner.ratio is not None else 1.0
        self.failures = Counter(r.failure for r in records if r.failure)
        self.is_decision = records[0].space == DECISIONS

    @property
    def saved(self) -> float:
        return self.calls * self.before * (1 - self.ratio)


def _headline(records: Sequence[Record], rows: Sequence[_Row]) -> str:
    kernels, decisions = ([r for r in rows if r.is_decision is d] for d in (False, True))
    # Kernels belong to the model with the winning decisions.
    total = sum(r.calls * r.before for r in kernels)
    before = total + sum(r.saved for r in decisions)
    after = total - sum(r.saved for r in kernels)
    gain = f"×{before / after:.2f}" if after > 0 else "–"
    decided = f" and {len(decisions)} decisions" if decisions else ""
    return (
        f"{len(records)} measurements of {len(kernels)} kernels{decided}; a run takes "
        f"{format_seconds(after)} of kernels instead of {format_seconds(before)} ({gain})."
    )


def _table(rows: Sequence[_Row]) -> list[str]:
    names = ("kernel or decision", "calls", "before", "after", "gain", "trials", "failures", "by")
    head = "".join(f"<th>{n}</th>" for n in names)
    return [f"<table><tr>{head}</tr>", *(_table_row(r) for r in rows), "</table>"]


def _table_row(row: _Row) -> str:
    failed = ", ".join(f"{n} {why}" for why, n in row.failures.items())
    cells = (
        row.name,
        str(row.calls),
        format_seconds(row.before),
        format_seconds(row.before * row.ratio),
        f"×{1 / row.ratio:.2f}",
        str(len(row.trials)),
        failed,
        "" if row.winner is None else row.winner.words,
    )
    return f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in cells)}</tr>"


def _figure(row: _Row) -> str:
    ratios = [r.ratio for r in row.trials]
    top = min(2.0, max([1.1, *(r for r in ratios if r is not None)]))
    best, steps, dots = 1.0, list[str](), list[str]()
    for number, ratio in enumerate(ratios):
        if ratio is not None:
            best = min(best, ratio)
            dots.append(_dot(_x(number, len(ratios)), _y(min(ratio, top), top)))
        steps.append(f"{_x(number, len(ratios)):.1f},{_y(best, top):.1f}")
    one = _y(1.0, top)
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f'<line class=one x1={_MARGIN} x2={_WIDTH} y1="{one:.1f}" y2="{one:.1f}"/>'
        f'<text x=0 y="{one:.1f}">1.0</text><text x=0 y="{_HEIGHT - 4}">0</text>'
        f'{"".join(dots)}<polyline class=curve points="{" ".join(steps)}"/></svg>'
        f"<figcaption>{escape(row.name)}</figcaption></figure>"
    )


def _dot(x: float, y: float) -> str:
    return f'<circle class=trial r=2 cx="{x:.1f}" cy="{y:.1f}"/>'


def _x(number: int, count: int) -> float:
    return _MARGIN + (_WIDTH - _MARGIN - 4) * number / max(1, count - 1)


def _y(ratio: float, top: float) -> float:
    return (_HEIGHT - 8) * (1 - ratio / top) + 4
