"""Boxes of detectors, of which those that overlap better ones are dropped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontends.common.padding import dim_number
from tilewright.graph import Builder, Value
from tilewright.support.errors import UserError


def kept_boxes(
    b: Builder, boxes: Value, scores: Value, *, overlap: float, least: float | None = None
) -> Value:
    """Which boxes B×n×4 (two corners) are kept for each class of the scores B×C×n: one or zero.

    A box is kept if its score is above `least`, and if no kept box of its class with a higher
    score overlaps it by more than `overlap`.
    """
    count = b.shape_of(boxes, start=1, end=2)
    least = -math.inf if least is None else least
    limits = [np.array([v], np.float32) for v in (overlap, least)]
    rows = b.nms(boxes, scores, count, *limits)
    nothing = b.full(np.float32(0), shape=scores.shape)
    return b.scatter_nd(nothing, rows, b.full(np.float32(1), shape=[rows.shape[0]]))


def below(threshold: float) -> float:
    """The number before this one in float32: `at most that` is then `less than the threshold`."""
    return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))


def from_centres(b: Builder, boxes: Value) -> Value:
    """Boxes …×4 given by centre and size, as corners."""
    axis = boxes.ndim - 1
    centre, size = b.split(boxes, sizes=[2, 2], axis=axis)
    half = b.mul(size, 0.5)
    return b.concat(b.sub(centre, half), b.add(centre, half), axis=axis)


def known_shape(x: Value, what: str) -> list[int]:
    """The shape of a value, whose sizes must be numbers."""
    sizes: list[Any] = [dim_number(d) for d in x.shape]
    if not all(isinstance(s, int) for s in sizes):
        raise UserError(f"the sizes of {what} must be known: {x}", remedy="give shapes as numbers")
    return sizes
