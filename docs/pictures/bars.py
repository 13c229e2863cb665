"""Bar charts as SVG, for figures that scripts beside this one measure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_WIDTH, _ROW, _LEFT, _RIGHT = 760, 34, 190, 90
_COLOURS = ("#8b95a7", "#2f6fed")


def bar_chart(title: str, values: Mapping[str, float], highlight: int = 1) -> str:
    """One bar a value; the last `highlight` of them in the colour of the house."""
    most = max(values.values())
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    rows = [
        _bar(k, name, value, value * scale, _COLOURS[k >= len(values) - highlight])
        for k, (name, value) in enumerate(values.items())
    ]
    height = 48 + _ROW * len(values)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
    style = 'width="760" font-family="system-ui, sans-serif" font-size="14">'
    caption = f'<text x="0" y="20" fill="#667085" font-size="13">{escape(title)}</text>'
    return "\n".join([head + style, caption, *rows, "</svg>", ""])


def _bar(row: int, name: str, value: float, length: float, colour: str) -> str:
    y = 36 + _ROW * row
    middle = y + 17
    label = f'x="{_LEFT - 12}" y="{middle}" text-anchor="end" fill="#475066"'
    return (
        f"<text {label}>{escape(name)}</text>"
        f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="24" rx="5" fill="{colour}"/>'
        f'<text x="{_LEFT + length + 8:.1f}" y="{middle}" fill="#475066">{value:.1f}</text>'
    )
