"""The final layers of detectors.

`yolo` and `region` give what OpenCV's reader gives, with the batch as a separate dimension and
before any suppression of boxes: N×(rows·columns·anchors)×(5 + classes), each row the centre, width
and height of a box as fractions of the image, the probability of an object, and for each class its
probability times that. Those up to the option `thresh` (0.2 for `yolo`, 0.001 for `region`) are
zero. `detection` (YOLO v1) gives what Darknet's own layer gives: its input, with softmax over the
classes of each cell if the option says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.ops.dense import flat
from tilewright.frontends.darknet.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError


class _Grid(NamedTuple):
    """The parts of a feature map, each N×(rows·columns·anchors)×…, and positions of its cells."""

    xy: Value
    wh: Value
    score: Value
    classes: Value
    corners: Array
    cells: Array


def _grid(n: Layer, count: int) -> _Grid:
    """The input as rows of numbers, for `count` anchors in each cell."""
    b, x, classes = n.builder, n.x, n.integer("classes", 20)
    channels, rows, columns = n.image_shape(x)
    if count < 1 or classes < 1 or channels != count * (5 + classes):
        raise UserError(
            f"{x} has {channels} channels",
            reason=f"{count} anchors with {classes} classes take {count * (5 + classes)}",
        )
    split = b.reshape(x, shape=[x.shape[0], count, 5 + classes, rows, columns])
    each = b.transpose(split, axes=[0, 3, 4, 1, 2])
    each = b.reshape(each, shape=[x.shape[0], rows * columns * count, 5 + classes])
    corners = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1)
    corners = np.repeat(corners.reshape(-1, 2), count, 0).astype(np.float32)
    cells = np.array([columns, rows], np.float32)
    xy, wh, score, found = b.split(each, sizes=[2, 2, 1, classes], axis=2)
    return _Grid(xy, wh, score, found, corners, cells)


def _rows(
    n: Layer, grid: _Grid, xy: Value, wh: Value, score: Value, classes: Value, least: float
) -> Value:
    b: Any = n.builder
    place = b.div(b.add(xy, grid.corners), grid.cells)
    found = b.mul(classes, score)
    found = b.where(b.greater(found, n.real("thresh", least)), found, np.float32(0))
    return b.concat(place, wh, score, found, axis=2)


def _per_cell(anchors: Array, grid: _Grid) -> Array:
    """The same anchors for each cell."""
    return np.tile(anchors, (len(grid.corners) // len(anchors), 1))


@converts("yolo")
def yolo(n: Layer) -> Value:
    b: Any = n.builder
    anchors = np.array(n.reals("anchors"), np.float32)
    if anchors.size % 2:
        raise UserError(f"there are {anchors.size} numbers in anchors", remedy="use pairs")
    if n.real("nms_threshold", 0.0) > 0:
        raise UserError("nms_threshold is not supported", remedy="suppress boxes afterwards")
    anchors = anchors.reshape(-1, 2)
    mask = n.integers("mask") or list(range(len(anchors)))
    if not all(0 <= k < len(anchors) for k in mask):
        raise UserError(f"the mask is {mask} for {len(anchors)} anchors")
    height, width = n.image
    grid = _grid(n, len(mask))
    sizes = _per_cell(anchors[mask] / np.array([width, height], np.float32), grid)
    is_new, scale = n.flag("new_coords"), n.real("scale_x_y", 1.0)
    given = (grid.xy, grid.wh, grid.score, grid.classes)
    if is_new:
        # The layer before has applied the logistic function already.
        xy, wh, score, classes = given
        wh = b.mul(b.mul(wh, wh), sizes * np.float32(4))
    else:
        xy, score, classes = (b.sigmoid(v) for v in (grid.xy, grid.score, grid.classes))
        wh = b.mul(b.exp(grid.wh), sizes)
    if scale != 1.0:
        xy = b.sub(b.mul(xy, scale), 0.5 * (scale - 1.0))
    return _rows(n, grid, xy, wh, score, classes, 0.2)


@converts("region")
def region(n: Layer) -> Value:
    b: Any = n.builder
    for option in ("tree", "map", "background"):
        n.refuse(option)
    if n.integer("coords", 4) != 4:
        raise UserError("boxes must have four coordinates")
    count = n.positive("num", 1)
    anchors = np.array(n.reals("anchors") or [0.5] * (2 * count), np.float32)
    if anchors.size != 2 * count:
        raise UserError(f"there are {anchors.size} numbers in anchors for {count} anchors")
    grid = _grid(n, count)
    sizes = _per_cell(anchors.reshape(-1, 2) / grid.cells, grid)
    classes = b.softmax(grid.classes, axis=2) if n.flag("softmax") else b.sigmoid(grid.classes)
    wh = b.mul(b.exp(grid.wh), sizes)
    return _rows(n, grid, b.sigmoid(grid.xy), wh, b.sigmoid(grid.score), classes, 0.001)


@converts("detection")
def detection(n: Layer) -> Value:
    b: Any = n.builder
    x, size = flat(n, n.x)
    if not n.flag("softmax"):
        return x
    side, classes = n.positive("side", 7), n.positive("classes", 1)
    cells = side * side * classes
    if cells > size:
        raise UserError(f"{side}×{side} cells of {classes} classes in {size} numbers")
    head, rest = b.split(x, sizes=[cells, size - cells], axis=1)
    parts = b.softmax(b.reshape(head, shape=[x.shape[0], side * side, classes]), axis=2)
    return b.concat(b.reshape(parts, shape=[x.shape[0], cells]), rest, axis=1)
