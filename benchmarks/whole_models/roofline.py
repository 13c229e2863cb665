"""Kernels under the roof of the machine, as a picture."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.insight.roof import Roof

_COLOURS = (
    *("#0969da", "#8250df", "#bc4c00", "#1a7f37", "#cf222e", "#9a6700"),
    *("#0550ae", "#6639ba", "#953800", "#116329", "#a40e26", "#7d4e00"),
    *("#54aeff", "#c297ff", "#ffa657", "#4ac26b", "#ff8182", "#d4a72c"),
)
_LEFT, _TOP, _WIDTH, _HEIGHT = 70, 54, 640, 380
#: Names of models side by side.
_NAMES = 3


class Point(NamedTuple):
    """A kernel in a model: what it does in a run, how long that takes, and its part of the run."""

    model: str
    kernel: str
    flops: float
    bytes: float
    seconds: float
    share: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        return self.flops / self.seconds


class _Axes:
    """Decades to places, on both axes."""

    def __init__(self, points: Sequence[Point], roof: Roof) -> None:
        knees = [roof.flops / roof.cached, roof.flops / roof.memory]
        xs, ys = [p.intensity for p in points], [p.rate for p in points]
        self.x0, self.x1 = _decades(min([*xs, knees[0] / 10]), max([*xs, knees[1] * 10]))
        self.y0, self.y1 = _decades(max(min([*ys, roof.flops / 10]), 1e7), max([*ys, roof.flops]))

    def x(self, intensity: float) -> float:
        return _LEFT + _WIDTH * (math.log10(intensity) - self.x0) / (self.x1 - self.x0)

    def y(self, rate: float) -> float:
        place = (math.log10(max(rate, 10**self.y0)) - self.y0) / (self.y1 - self.y0)
        return _TOP + _HEIGHT * (1 - place)


def _decades(least: float, most: float) -> tuple[int, int]:
    low = math.floor(math.log10(least))
    return low, max(low + 1, math.ceil(math.log10(most)))


def roofline_picture(points: Sequence[Point], roof: Roof) -> str:
    """An SVG: operations per second over operations per byte, both by decades."""
    shown = [p for p in points if p.flops and p.bytes and p.seconds]
    axes, models = _Axes(shown, roof), list(dict.fromkeys(p.model for p in shown))
    rows = math.ceil(len(models) / _NAMES)
    size = f'width="{_LEFT + _WIDTH + 30}" height="{_TOP + _HEIGHT + 60 + 18 * rows}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        'font-family="system-ui, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15" font-weight="600">Kernels of the benchmark '
        "models under the roof of the machine</text>",
        f'<text x="{_LEFT}" y="42" fill="#57606a">GFLOP/s over FLOP per byte; the area of a point '
        "is its part of its model’s time</text>",
        *_grid(axes),
        *_roof(axes, roof),
        *(_point(p, axes, _COLOURS[models.index(p.model) % len(_COLOURS)]) for p in shown),
        *_legend(models),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(axes: _Axes) -> Iterator[str]:
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    for k in range(axes.x0, axes.x1 + 1):
        x = axes.x(10.0**k)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}" stroke="#eaeef2"/>'
        place = f'x="{x:.1f}" y="{bottom + 18}" text-anchor="middle"'
        yield f'<text {place} fill="#57606a">{10.0**k:g}</text>'
    for k in range(axes.y0, axes.y1 + 1):
        y = axes.y(10.0**k)
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eaeef2"/>'
        place = f'x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end"'
        yield f'<text {place} fill="#57606a">{10.0 ** (k - 9):g}</text>'


def _roof(axes: _Axes, roof: Roof) -> Iterator[str]:
    """The slope of memory and that of the caches, both up to the peak."""
    for rate, dashes in ((roof.memory, ""), (roof.cached, ' stroke-dasharray="5 5"')):
        low, knee = 10.0**axes.x0, roof.flops / rate
        start = max(low, 10.0**axes.y0 / rate)
        places = [(start, rate * start), (knee, roof.flops), (10.0**axes.x1, roof.flops)]
        line = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in places)
        yield f'<polyline points="{line}" fill="none" stroke="#24292f" stroke-width="1.5"{dashes}/>'
    x, y = _LEFT + _WIDTH - 4, axes.y(roof.flops) - 6
    yield f'<text x="{x}" y="{y:.1f}" text-anchor="end">{roof.flops / 1e9:.0f} GFLOP/s</text>'
    rates = f"memory {roof.memory / 1e9:.0f} GB/s, caches (dashed) {roof.cached / 1e9:.0f} GB/s"
    yield f'<text x="{_LEFT + 8}" y="{_TOP + 16}" fill="#57606a">{rates}</text>'


def _point(point: Point, axes: _Axes, colour: str) -> str:
    radius = 2 + 14 * math.sqrt(point.share)
    place = f'cx="{axes.x(point.intensity):.1f}" cy="{axes.y(point.rate):.1f}" r="{radius:.1f}"'
    title = html.escape(
        f"{point.model}: {point.kernel}, {point.rate / 1e9:.1f} GFLOP/s, {point.share:.0%}"
    )
    return f'<circle {place} fill="{colour}" fill-opacity="0.5"><title>{title}</title></circle>'


def _legend(models: Sequence[str]) -> Iterator[str]:
    for k, name in enumerate(models):
        row, column = divmod(k, _NAMES)
        x, y = _LEFT + _WIDTH / _NAMES * column, _TOP + _HEIGHT + 44 + 18 * row
        colour = _COLOURS[k % len(_COLOURS)]
        yield f'<circle cx="{x:.0f}" cy="{y - 4}" r="5" fill="{colour}" fill-opacity="0.6"/>'
        yield f'<text x="{x + 10:.0f}" y="{y}">{html.escape(name)}</text>'
