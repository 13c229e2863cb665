"""The table of `benchmarks/models.py` as a picture: one bar for each model, peers as marks."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

OURS = "tilewright"
COLOURS = {
    "onnxruntime": "#2f81f7",
    "openvino": "#8957e5",
    "torch.compile": "#f0883e",
    "tvm": "#3fb950",
}
_LEFT, _WIDTH, _ROW, _TOP = 250, 600, 26, 64


def ratio_picture(rows: Sequence[Mapping[str, Any]]) -> str:
    """An SVG: how many times as long as ours each peer takes, model by model."""
    shown = [r for r in rows if OURS in r["runtimes"] and len(r["runtimes"]) > 1]
    most = max((_ratio(r, n) for r in shown for n in r["runtimes"] if n != OURS), default=2.0)
    scale = _Scale(min(most, 4.0) * 1.05)
    height = _TOP + _ROW * len(shown) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 30}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<text x="12" y="22" font-size="15" font-weight="600">Time of a peer / time of '
        "Tilewright (right of the line: Tilewright is faster)</text>",
        *_legend({n for r in shown for n in r["runtimes"] if n != OURS}),
        *_grid(scale, height),
        *(part for k, row in enumerate(shown) for part in _row(k, row, scale)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    def __init__(self, most: float) -> None:
        self.most = most

    def x(self, ratio: float) -> float:
        return _LEFT + _WIDTH * min(ratio, self.most) / self.most


def _ratio(row: Mapping[str, Any], runtime: str) -> float:
    return row["runtimes"][runtime]["ratio"]


def _legend(runtimes: set[str]) -> list[str]:
    parts: list[str] = []
    for k, name in enumerate(n for n in COLOURS if n in runtimes):
        x = _LEFT + 130 * k
        parts.append(f'<circle cx="{x}" cy="42" r="5" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 10}" y="46">{html.escape(name)}</text>')
    return parts


def _grid(scale: _Scale, height: int) -> list[str]:
    parts: list[str] = []
    for half in range(math.floor(scale.most * 2) + 1):
        x, is_one = scale.x(half / 2), half == 2
        style = "#24292f" if is_one else "#d0d7de"
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 20}" stroke="{style}"/>'
        )
        place = f'x="{x:.1f}" y="{height - 6}" text-anchor="middle"'
        parts.append(f'<text {place} fill="#57606a">{half / 2:g}</text>')
    return parts


def _row(k: int, row: Mapping[str, Any], scale: _Scale) -> list[str]:
    y = _TOP + _ROW * k + _ROW / 2
    peers = {n: _ratio(row, n) for n in row["runtimes"] if n != OURS}
    best = min(peers.values())
    label = f"{row['model']}, {row['threads']}T" + (
        f", ×{row['batch']}" if row["batch"] > 1 else ""
    )
    colour = "#1a7f37" if best >= 1 else "#cf222e"
    marks = [
        f'<circle cx="{scale.x(r):.1f}" cy="{y}" r="5" fill="{COLOURS[n]}" fill-opacity="0.85">'
        f"<title>{html.escape(n)} {r:.2f}</title></circle>"
        for n, r in peers.items()
    ]
    return [
        f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>',
        f'<rect x="{_LEFT}" y="{y - 7}" width="{scale.x(best) - _LEFT:.1f}" height="14" '
        f'fill="{colour}" fill-opacity="0.25"/>',
        *marks,
    ]
