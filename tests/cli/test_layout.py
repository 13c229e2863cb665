"""Drawn graphs: nothing overlaps, edges go down, long ones are led around what is between."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tilewright.cli.report.layout import layout


def _random_graph(seed: int, count: int) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    near = [(max(0, k - rng.randint(1, 4)), k) for k in range(1, count)]
    pairs = [sorted(rng.sample(range(count), 2)) for _ in range(count // 6)]
    return sorted({*near, *((a, b) for a, b in pairs)})


@pytest.mark.parametrize("seed", range(8))
def test_nodes_do_not_overlap_and_edges_go_down(seed: int) -> None:
    count = 120
    edges = _random_graph(seed, count)
    widths = [40.0 + 5 * (k % 17) for k in range(count)]
    placed = layout(widths, edges)
    for a, b in edges:
        assert placed.y[a] < placed.y[b]
    rows: dict[float, list[int]] = {}
    for k, y in enumerate(placed.y):
        rows.setdefault(y, []).append(k)
    for row in rows.values():
        row.sort(key=lambda k: placed.x[k])
        for left, right in pairwise(row):
            gap = placed.x[right] - placed.x[left] - (widths[left] + widths[right]) / 2
            assert gap > 0
    assert all(0 <= x <= placed.width for x in placed.x)


def test_edges_end_at_their_nodes_and_pass_every_layer() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    placed = layout([50.0] * 4, edges)
    for (a, b), points in zip(edges, placed.edges, strict=True):
        assert points[0] == (placed.x[a], placed.y[a])
        assert points[-1] == (placed.x[b], placed.y[b])
    assert [len(p) for p in placed.edges] == [2, 2, 2, 4]


def test_a_chain_is_a_straight_line() -> None:
    placed = layout([30.0, 90.0, 30.0, 60.0], [(0, 1), (1, 2), (2, 3)])
    assert len(set(placed.x)) == 1


def test_large_graphs_are_laid_out() -> None:
    count = 3000
    placed = layout([80.0] * count, _random_graph(0, count))
    assert len(placed.x) == count


def test_no_nodes() -> None:
    assert layout([], []).x == []
