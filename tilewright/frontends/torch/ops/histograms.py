"""Histograms of one and of several dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


@converts("histogram")
def histogram(n: Node) -> list[Value]:
    b = n.builder
    points = b.reshape(n.tensor("self"), shape=[-1, 1])
    given = n["bins"]
    edges = [given] if isinstance(given, Value) else _edges(n, points, [int(given)])
    return [_counted(n, points, edges), n.cast(edges[0], n.dtype)]


@converts("_histogramdd_bin_edges")
def bin_edges(n: Node) -> list[Value]:
    return [n.cast(e, n.dtype) for e in _edges(n, _points(n), [int(k) for k in n["bins"]])]


@converts("_histogramdd_from_bin_cts")
def by_numbers_of_bins(n: Node) -> Value:
    points = _points(n)
    return _counted(n, points, _edges(n, points, [int(k) for k in n["bins"]]))


@converts("_histogramdd_from_bin_tensors")
def by_edges(n: Node) -> Value:
    return _counted(n, _points(n), n.tensors("bins"))


def _points(n: Node) -> Value:
    """The points, one in each row."""
    x = n.tensor("self")
    return n.builder.reshape(x, shape=[-1, x.shape[x.ndim - 1]])


def _column(n: Node, points: Value, k: int) -> Value:
    return n.cast(n.builder.gather(points, n.constant(k, "int64"), axis=1), "float64")


def _edges(n: Node, points: Value, bins: Sequence[int]) -> list[Value]:
    """Edges of equally wide bins, over the given range or that of the points."""
    b, range_ = n.builder, n.get("range")
    made: list[Value] = []
    for k, count in enumerate(bins):
        if range_ is not None:
            low, high = (n.constant(float(v), "float64") for v in range_[2 * k : 2 * k + 2])
        else:
            column = _column(n, points, k)
            low, high = b.min(column, axes=[0]), b.max(column, axes=[0])
        # If all points are equal, half a unit to both sides.
        half = b.where(b.equal(low, high), n.constant(0.5, "float64"), n.constant(0.0, "float64"))
        low, high = b.sub(low, half), b.add(high, half)
        steps = b.constant([j / count for j in range(count + 1)], "float64")
        made.append(b.add(low, b.mul(b.sub(high, low), steps)))
    return made


def _counted(n: Node, points: Value, edges: Sequence[Value]) -> Value:
    """The number of points, or their weight, in each bin; the last one includes its upper edge."""
    b, zero, one = n.builder, n.constant(0, "int64"), n.constant(1, "int64")
    wide = [n.cast(e, "float64") for e in edges]
    shape = [e.shape[0] - 1 for e in edges]
    inside: Any = None
    places: list[Value] = []
    for k, edge in enumerate(wide):
        column = b.unsqueeze(_column(n, points, k), axes=[1])
        below = b.sum(n.cast(b.less_equal(edge, column), "int64"), axes=[1])
        last = n.number(shape[k], "int64")
        is_last = b.equal(b.squeeze(column, axes=[1]), b.gather(edge, last, axis=0))
        place = b.where(is_last, b.sub(last, one), b.sub(below, one))
        holds = b.logical_and(b.greater_equal(place, zero), b.less(place, last))
        inside = holds if inside is None else b.logical_and(inside, holds)
        place = b.minimum(b.maximum(place, zero), b.sub(last, one))
        places.append(b.unsqueeze(place, axes=[1]))
    weights = n.maybe("weight", n.dtype)
    flat = n.full(1, [points.shape[0]], n.dtype) if weights is None else weights
    flat = b.where(inside, b.reshape(flat, shape=[-1]), n.like(0, flat))
    at = b.concat(*places, axis=1) if len(places) > 1 else places[0]
    made = b.scatter_nd(n.full(0, shape, n.dtype), at, flat, reduction="add")
    return _density(n, made, wide) if n.get("density", False) else made


def _density(n: Node, counts: Value, edges: Sequence[Value]) -> Value:
    """Counts as a density with integral 1."""
    b, rank = n.builder, counts.ndim
    made = b.div(counts, b.sum(counts, axes=list(range(rank))))
    for k, edge in enumerate(edges):
        size = edge.shape[0]
        upper = b.slice(edge, starts=[1], ends=[size], axes=[0])
        lower = b.slice(edge, starts=[0], ends=[size - 1], axes=[0])
        widths = b.reshape(
            n.cast(b.sub(upper, lower), counts.dtype),
            shape=[*[1] * k, size - 1, *[1] * (rank - 1 - k)],
        )
        made = b.div(made, widths)
    return made
