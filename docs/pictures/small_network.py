"""Draws a small network before and after fusion, and its memory plan, as they really are.

python docs/pictures/small_network.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.cli.report.collect import collect
from tilewright.graph import Builder, Module

HERE = Path(__file__).parent
_COLOURS = {
    "conv": "#2f6fed",
    "max_pool": "#e5484d",
    "mean": "#e5484d",
    "relu": "#12a594",
    "matmul": "#2f6fed",
}
_OTHER, _INK, _SOFT = "#8b95a7", "#1a1d23", "#667085"


def network() -> Module:
    """A convolution, a residual block, a classifier."""
    rng = np.random.default_rng(0)

    def conv(x: Any, channels: int, size: int) -> Any:
        weights = rng.standard_normal((channels, int(x.shape[1].value), size, size))
        pads = [size // 2] * 4
        scaled = (weights / (size * size * 8)).astype(np.float32)
        return b.conv(x, scaled, strides=[1, 1], pads=pads, dilations=[1, 1])

    b = Builder()
    x = b.relu(conv(b.input("image", "f32", (1, 3, 32, 32)), 16, 3))
    x = b.relu(conv(b.relu(conv(x, 16, 3)), 16, 3) + x)
    x = b.mean(x, axes=[2, 3], keepdims=False)
    x = b.matmul(x, rng.standard_normal((16, 10)).astype(np.float32))
    b.output(b.softmax(x, name="scores"))
    return b.build()


def main() -> None:
    # Without blocked layouts, which would add steps that say nothing about fusion.
    model = tw.compile(network(), opt_level=1)
    assert isinstance(model, tw.Model)
    report = collect(model, "network")
    graphs = [report["graphs"][k] for k in ("before", "after")]
    _write("fusion.svg", _side_by_side(graphs, ("Before fusion", "After: one kernel a box")))
    _write("memory.svg", _memory(report["memory"]))


def _write(name: str, picture: str) -> None:
    (HERE / name).write_text(picture + "\n", encoding="utf-8")


def _svg(width: float, height: float, parts: list[str]) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif">'
    return "\n".join([head, *parts, "</svg>"])


# ---- graphs -------------------------------------------------------------------------------------


def _side_by_side(graphs: list[dict[str, Any]], titles: tuple[str, ...]) -> str:
    parts, at = list[str](), 10.0
    for graph, title in zip(graphs, titles, strict=True):
        parts.append(f'<g transform="translate({at:.0f} 40)">')
        parts.append(
            f'<text x="{graph["width"] / 2:.0f}" y="-16" {_text(14, _SOFT)}>{title}</text>'
        )
        parts += [_edge(e) for e in graph["edges"]] + [_node(n) for n in graph["nodes"]]
        parts.append("</g>")
        at += graph["width"] + 90
    return _svg(at - 80, max(g["height"] for g in graphs) + 56, parts)


def _text(size: float, colour: str, weight: int = 400) -> str:
    return f'text-anchor="middle" font-size="{size}" font-weight="{weight}" fill="{colour}"'


def _edge(edge: dict[str, Any]) -> str:
    p = edge["points"]
    points = list(zip(p[::2], p[1::2], strict=True))
    path = f"M{points[0][0]} {points[0][1] + 20}"
    last = points[0][0], points[0][1] + 20
    for k, (x, y) in enumerate(points[1:], 1):
        end = y - 20 if k == len(points) - 1 else y
        middle = (last[1] + end) / 2
        path += f"C{last[0]} {middle} {x} {middle} {x} {end}"
        last = x, end
    return f'<path d="{path}" fill="none" stroke="#c3c9d4" stroke-width="1.5"/>'


def _node(node: dict[str, Any]) -> str:
    colour = _COLOURS.get(node["kind"], _OTHER)
    x, y, w = node["x"], node["y"], node["w"]
    box = f'x="{x - w / 2:.1f}" y="{y - 20}" width="{w:.1f}" height="40" rx="9"'
    return (
        f'<rect {box} fill="white"/><rect {box} fill="{colour}22" stroke="{colour}"/>'
        f'<text x="{x}" y="{y - 1}" {_text(12.5, _INK, 600)}>{escape(node["label"])}</text>'
        f'<text x="{x}" y="{y + 13}" {_text(10.5, _SOFT)}>{escape(node["type"])}</text>'
    )


# ---- memory -------------------------------------------------------------------------------------


def _memory(memory: dict[str, Any]) -> str:
    width, height, steps = 700.0, 220.0, memory["last"] + 1
    parts = [
        f'<text x="350" y="20" {_text(14, _SOFT)}>One arena of {memory["size"] / 1e3:.0f} KB: '
        "each box is a value, from the kernel that makes it to the last that reads it</text>"
    ]
    for number, place in enumerate(memory["places"]):
        x = width * place["first"] / steps
        wide = width * (place["last"] + 1) / steps - x
        tall = height * place["size"] / memory["size"]
        y = 32 + height - height * (place["offset"] + place["size"]) / memory["size"]
        box = f'x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{max(1.0, tall - 1):.1f}"'
        parts.append(
            f'<rect {box} rx="3" fill="#2f6fed" opacity="{(0.9, 0.6, 0.75)[number % 3]}"/>'
        )
    parts.append(f'<text x="350" y="{height + 52}" {_text(12, _SOFT)}>kernel calls →</text>')
    return _svg(width, height + 60, parts)


if __name__ == "__main__":
    main()
