"""Where the nodes of a drawn graph go: in layers, with few crossings, lines as straight as can be.

The method is Sugiyama's, every step linear or nearly so: layers by longest path; long edges as
chains of points; the order within a layer by medians; and places by least squares, for which
pooling neighbours that push each other gives the exact answer for one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

#: Distances, in the units of the page.
_GAP: Final = 28.0
_LAYER: Final = 76.0
_HEIGHT: Final = 40.0
#: Edges over more layers than this are drawn without being led around what lies between.
_FAR: Final = 40
_SWEEPS: Final = 6


@dataclass
class Placed:
    """The places of nodes (their centres) and the points of edges, from source to target."""

    x: list[float]
    y: list[float]
    edges: list[list[tuple[float, float]]]
    width: float
    height: float


@dataclass
class _Cell:
    """A node, or a point of a long edge, in its layer."""

    layer: int
    width: float
    above: list[int] = field(default_factory=list[int])
    below: list[int] = field(default_factory=list[int])
    x: float = 0.0


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Placed:
    """Places for nodes of these widths; edges go from earlier nodes to later ones."""
    layers = _layers(len(widths), edges)
    cells = [_Cell(layer, width) for layer, width in zip(layers, widths, strict=True)]
    chains = [_chain(cells, a, b) for a, b in edges]
    rows = _rows(cells)
    for sweep in range(_SWEEPS):
        _reorder(rows, cells, downwards=sweep % 2 == 0)
    _place(rows, cells)
    return _placed(cells, len(widths), chains)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; nodes without inputs stand right above their readers."""
    layers, followers = [0] * count, [count] * count
    fed = [False] * count
    for a, b in sorted(edges, key=lambda e: e[1]):
        layers[b] = max(layers[b], layers[a] + 1)
        fed[b] = True
    for a, b in edges:
        followers[a] = min(followers[a], layers[b])
    return [
        layer if fed[k] or followers[k] == count else max(0, followers[k] - 1)
        for k, layer in enumerate(layers)
    ]


def _chain(cells: list[_Cell], a: int, b: int) -> list[int]:
    """The cells that an edge runs through."""
    first, last = cells[a].layer, cells[b].layer
    if last - first > _FAR:
        return [a, b]
    path = [a]
    for layer in range(first + 1, last):
        cells.append(_Cell(layer, 8.0))
        path.append(len(cells) - 1)
    path.append(b)
    for upper, lower in pairwise(path):
        cells[upper].below.append(lower)
        cells[lower].above.append(upper)
    return path


def _rows(cells: Sequence[_Cell]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(1 + max((c.layer for c in cells), default=0))]
    for number, cell in enumerate(cells):
        rows[cell.layer].append(number)
    return rows


def _reorder(rows: list[list[int]], cells: Sequence[_Cell], *, downwards: bool) -> None:
    """Sort each layer by the middle of its neighbours in the layer before."""
    position = {c: float(k) for row in rows for k, c in enumerate(row)}
    for row in rows if downwards else reversed(rows):
        keys: dict[int, float] = {}
        for c in row:
            near = cells[c].above if downwards else cells[c].below
            places = sorted(position[n] for n in near)
            keys[c] = _median(places) if places else position[c]
        row.sort(key=keys.__getitem__)
        position.update({c: float(k) for k, c in enumerate(row)})


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


# ---- places within a layer ----------------------------------------------------------------------


def _place(rows: Sequence[Sequence[int]], cells: Sequence[_Cell]) -> None:
    for row in rows:
        _settle(row, cells, [0.0] * len(row))
    for _ in range(_SWEEPS):
        for row in rows:
            _settle(row, cells, [_wish(cells, c, cells[c].above) for c in row])
        for row in reversed(rows):
            _settle(row, cells, [_wish(cells, c, cells[c].below) for c in row])


def _wish(cells: Sequence[_Cell], cell: int, near: Sequence[int]) -> float:
    if not near:
        return cells[cell].x
    return _median(sorted(cells[n].x for n in near))


def _settle(row: Sequence[int], cells: Sequence[_Cell], wishes: Sequence[float]) -> None:
    """The places nearest to the wishes, by squares, at which no two cells touch."""
    # Without the room that cells take, the places only have to be in order: cells that would
    # overtake each other form a group, which stands at the mean of its wishes.
    offsets, total = list[float](), 0.0
    for k, c in enumerate(row):
        if k:
            total += (cells[row[k - 1]].width + cells[c].width) / 2 + _GAP
        offsets.append(total)
    groups: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=True):
        mean, size = wish - offset, 1
        while groups and groups[-1][0] >= mean:
            other, count = groups.pop()
            mean = (mean * size + other * count) / (size + count)
            size += count
        groups.append((mean, size))
    places = [mean for mean, size in groups for _ in range(size)]
    for c, place, offset in zip(row, places, offsets, strict=True):
        cells[c].x = place + offset


def _placed(cells: Sequence[_Cell], count: int, chains: Sequence[Sequence[int]]) -> Placed:
    left = min((c.x - c.width / 2 for c in cells), default=0.0)
    right = max((c.x + c.width / 2 for c in cells), default=0.0)
    xs = [round(c.x - left, 1) for c in cells]
    ys = [c.layer * _LAYER + _HEIGHT / 2 for c in cells]
    edges = [[(xs[c], ys[c]) for c in chain] for chain in chains]
    height = max(ys, default=0.0) + _HEIGHT / 2
    return Placed(xs[:count], ys[:count], edges, round(right - left, 1), height)
