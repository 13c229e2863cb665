"""The report as HTML: one file without scripts, with a plot of the trade-off."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import Final

from tilewright.quantize.mixed import Point
from tilewright.quantize.report import LayerReport, Report

_WIDTH, _HEIGHT, _MARGIN = 640, 280, 48
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .2rem .6rem; text-align: left }
tr:nth-child(even) { background: #8881 } .float32 { color: #b45309 } .number { text-align: right }
svg { max-width: 100% } svg text { font-size: 12px; fill: currentColor }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } }
"""


def report_page(report: Report) -> str:
    """The HTML of a report."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Quantization</title>",
        f"<style>{_STYLE}</style><h1>Quantization</h1><p>{escape(report.summary)}</p>",
        _curve(report.curve, report.budget),
        "<table><tr><th>precision<th>share<th>noise alone<th>operator<th>layer<th></tr>",
        *map(_row, report.layers),
        "</table></html>",
    ]
    return "\n".join(part for part in parts if part)


def _row(row: LayerReport) -> str:
    noise = "" if row.sqnr is None else f"{row.sqnr:.1f} dB"
    cells = [
        f"<td class={row.precision}>{row.precision}",
        f"<td class=number>{row.share:.1%}",
        f"<td class=number>{noise}",
        f"<td>{escape(row.operator)}",
        f'<td title="{escape(row.origin)}">{escape(row.name)}',
        f"<td>{escape(row.reason)}",
    ]
    return f"<tr>{''.join(cells)}</tr>"


# ---- the curve ----------------------------------------------------------------------------------


def _curve(points: Sequence[Point], budget: float | None) -> str:
    """A plot of the error over the share of multiplications in int8."""
    drawn = sorted((p.share, p.error.relative) for p in points if isfinite(p.error.relative))
    if len(drawn) < 2:
        return ""
    top = max([e for _, e in drawn] + ([] if budget is None else [budget])) * 1.1 or 1.0
    places = [(_x(share), _y(error, top)) for share, error in drawn]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{share:.0%} in bytes: {error:.2e}</title>'
        "</circle>"
        for (x, y), (share, error) in zip(places, drawn, strict=True)
    )
    limit = "" if budget is None else _limit(budget, top)
    axes = (
        f'<path d="M{_MARGIN} 10V{_HEIGHT - _MARGIN}H{_WIDTH - 10}" fill="none" stroke="#888"/>'
        f'<text x="{_MARGIN}" y="{_HEIGHT - 16}">0 %</text>'
        f'<text x="{_WIDTH - 50}" y="{_HEIGHT - 16}">100 %</text>'
        f'<text x="{_WIDTH // 2 - 110}" y="{_HEIGHT - 16}">multiplications in bytes</text>'
        f'<text x="4" y="20">{top:.1%}</text><text x="4" y="{_HEIGHT - _MARGIN}">0</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="error over share in bytes">'
        f'{axes}{limit}<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>'
        f'<g fill="#2563eb">{dots}</g></svg>'
    )


def _limit(budget: float, top: float) -> str:
    y = _y(budget, top)
    return (
        f'<path d="M{_MARGIN} {y:.1f}H{_WIDTH - 10}" stroke="#b45309" stroke-dasharray="4"/>'
        f'<text x="{_WIDTH - 130}" y="{y - 6:.1f}">budget {budget:.2%}</text>'
    )


def _x(share: float) -> float:
    return _MARGIN + share * (_WIDTH - _MARGIN - 20)


def _y(error: float, top: float) -> float:
    return _HEIGHT - _MARGIN - error / top * (_HEIGHT - _MARGIN - 20)
