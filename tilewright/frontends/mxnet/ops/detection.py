"""SSD's operators, and the suppression of overlapping boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontends.common.boxes import below, from_centres, kept_boxes
from tilewright.frontends.mxnet.node import Node, checked_axis
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: More boxes are refused.
_MOST_BOXES = 1 << 22


@converts("_contrib_MultiBoxPrior", "MultiBoxPrior")
def multi_box_prior(n: Node) -> Value:
    """1×boxes×4: corners of boxes at each pixel, of all sizes, then of all other ratios."""
    rows, columns = n.extent(n[0], 2), n.extent(n[0], 3)
    sizes, ratios = n.reals("sizes", [1.0]), n.reals("ratios", [1.0])
    steps, offsets = n.reals("steps", [-1.0, -1.0]), n.reals("offsets", [0.5, 0.5])
    if not sizes or not ratios or min(ratios) <= 0 or len(steps) != 2 or len(offsets) != 2:
        raise UserError(f"boxes of the sizes {sizes} and the ratios {ratios}")
    if rows * columns * (len(sizes) + len(ratios)) > _MOST_BOXES:
        raise UserError(f"boxes of {len(sizes)} sizes at {rows}×{columns} places")
    step_y, step_x = (s if s > 0 else 1 / e for s, e in zip(steps, (rows, columns), strict=True))
    shape = rows / columns
    root = math.sqrt(ratios[0])
    halves = [(s * shape * root / 2, s / root / 2) for s in sizes]
    halves += [
        (sizes[0] * shape * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2) for r in ratios[1:]
    ]
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    centres = np.stack([(x + offsets[1]) * step_x, (y + offsets[0]) * step_y], -1)[:, :, None]
    boxes = np.concatenate([centres - halves, centres + halves], -1).reshape(1, -1, 4)
    boxes = np.clip(boxes, 0, 1) if n.flag("clip") else boxes
    return n.builder.constant(boxes.astype(np.float32))


@converts("_contrib_MultiBoxDetection", "MultiBoxDetection")
def multi_box_detection(n: Node) -> Value:
    """N×boxes×6: class, score and corners, best first; those that are dropped have class -1."""
    b: Any = n.builder
    scores, moves, anchors = n[0], n[1], n[2]
    count, classes = n.extent(scores, 2), n.extent(scores, 1)
    background = n.integer("background_id", 0)
    if background != 0 or classes < 2:
        raise UserError(f"{classes} classes of which {background} is the background")
    found = b.slice(scores, starts=[1], ends=[classes], axes=[1])
    label, best = b.argmax(found, axis=1), b.max(found, axes=[1])
    boxes = _decoded(n, moves, anchors, count)
    valid = b.greater_equal(best, n.real("threshold", 0.01))
    best = b.where(valid, best, np.float32(-1))
    # The best come first; ignored ones come last.
    ranked, order = b.top_k(best, k=count, axis=1)
    valid = b.greater_equal(ranked, 0.0)
    label = b.gather_elements(label, order, axis=1)
    boxes = b.gather_nd(boxes, b.unsqueeze(order, axes=[2]), batch_dims=1)
    limit = n.integer("nms_topk", -1)
    tried = valid
    if 0 < limit < count:
        tried = b.logical_and(valid, np.arange(count) < limit)
    kept, overlap = tried, n.real("nms_threshold", 0.5)
    if 0 < overlap <= 1:
        kept = _kept(n, boxes, ranked, label, tried, classes - 1, below(overlap))
    ids = b.where(kept, b.cast(label, dtype="float32"), np.float32(-1))
    rows = b.concat(*(b.unsqueeze(v, axes=[2]) for v in (ids, ranked)), boxes, axis=2)
    return b.where(b.unsqueeze(valid, axes=[2]), rows, np.float32(-1))


def _kept(
    n: Node, boxes: Value, ranked: Value, label: Value, tried: Value, classes: int, overlap: float
) -> Value:
    """Which boxes are kept, among those of a class or among all."""
    b: Any = n.builder
    if n.flag("force_suppress"):
        own = b.unsqueeze(tried, axes=[1])
    else:
        every = np.arange(classes).reshape(1, classes, 1)
        own = b.equal(b.unsqueeze(label, axes=[1]), every)
        own = b.logical_and(own, b.unsqueeze(tried, axes=[1]))
    scores = b.where(own, b.unsqueeze(ranked, axes=[1]), np.float32(-np.inf))
    kept = kept_boxes(b, boxes, scores, overlap=overlap, least=-np.inf)
    return b.greater(b.max(kept, axes=[1]), 0.5)


def _decoded(n: Node, moves: Value, anchors: Value, count: int) -> Value:
    """Boxes as their anchors, shifted and scaled."""
    b: Any = n.builder
    variances = n.reals("variances", [0.1, 0.1, 0.2, 0.2])
    if len(variances) != 4:
        raise UserError(f"the variances are {variances}", remedy="give four")
    moves = b.reshape(moves, shape=[moves.shape[0], count, 4])
    moves = b.mul(moves, np.array(variances, np.float32))
    boxes = _moved(n, moves, *_from_corners(n, anchors))
    return b.clip(boxes, 0.0, 1.0) if n.flag("clip", True) else boxes


@converts("_contrib_box_decode")
def box_decode(n: Node) -> Value:
    """Corners of boxes that are their anchors, shifted and scaled."""
    b: Any = n.builder
    stds = np.array([n.real(f"std{k}", 1.0) for k in range(4)], np.float32)
    if n.text("format", "center") == "corner":
        centre, size = _from_corners(n, n[1])
    else:
        centre, size = b.split(n[1], sizes=[2, 2], axis=2)
    return _moved(n, b.mul(n[0], stds), centre, size, n.real("clip", -1.0))


def _from_corners(n: Node, boxes: Value) -> tuple[Value, Value]:
    """Centres and sizes of boxes."""
    b: Any = n.builder
    low, high = b.split(boxes, sizes=[2, 2], axis=2)
    return b.mul(b.add(low, high), 0.5), b.sub(high, low)


def _moved(n: Node, moves: Value, centre: Value, size: Value, most: float = -1) -> Value:
    """Corners of boxes shifted by fractions of their sizes, scaled by powers of e, up to `most`."""
    b: Any = n.builder
    shift, growth = b.split(moves, sizes=[2, 2], axis=2)
    if most > 0:
        growth = b.minimum(growth, most)
    moved, grown = b.add(b.mul(shift, size), centre), b.mul(b.exp(growth), size)
    return from_centres(b, b.concat(moved, grown, axis=2))


@converts("_contrib_box_nms", "_contrib_box_non_maximum_suppression")
def box_nms(n: Node) -> Value:
    """Rows in the order of their scores, those that are kept in front, -1 in all others."""
    b: Any = n.builder
    x = n[0]
    width, count = n.extent(x, x.ndim - 1), n.extent(x, x.ndim - 2)
    rows = b.reshape(x, shape=[-1, count, width])
    start, score_at = n.integer("coord_start", 2), checked_axis(n.integer("score_index", 1), width)
    id_at, background = n.integer("id_index", -1), n.integer("background_id", -1)
    if not 0 <= start <= width - 4:
        raise UserError(f"coordinates from {start} on in rows of {width}")
    scores = _column(n, rows, score_at)
    valid = b.greater(scores, n.real("valid_thresh", 0.0))
    label = _column(n, rows, id_at) if id_at >= 0 else None
    if label is not None and background >= 0:
        valid = b.logical_and(valid, b.not_equal(label, float(background)))
    ranked, order = b.top_k(b.where(valid, scores, np.float32(-np.inf)), k=count, axis=1)
    rows = b.gather_nd(rows, b.unsqueeze(order, axes=[2]), batch_dims=1)
    valid = b.greater(ranked, -np.inf)
    limit = n.integer("topk", -1)
    if 0 < limit < count:
        valid = b.logical_and(valid, np.arange(count) < limit)
    boxes = b.slice(rows, starts=[start], ends=[start + 4], axes=[2])
    corners = from_centres(b, boxes) if n.text("in_format", "corner") == "center" else boxes
    if label is not None and not n.flag("force_suppress"):
        corners = _apart(n, corners, _column(n, rows, id_at))
    chances = b.where(valid, ranked, np.float32(-np.inf))
    kept = kept_boxes(
        b, corners, b.unsqueeze(chances, axes=[1]), overlap=n.real("overlap_thresh", 0.5)
    )
    stays = b.greater(b.squeeze(kept, axes=[1]), 0.5)
    # Those that are kept come first, in order.
    _, places = b.top_k(b.cast(stays, dtype="float32"), k=count, axis=1)
    rows = b.gather_nd(rows, b.unsqueeze(places, axes=[2]), batch_dims=1)
    rows = _in_format(n, rows, start, width)
    front = b.gather_elements(stays, places, axis=1)
    made = b.where(b.unsqueeze(front, axes=[2]), rows, np.float32(-1))
    return b.reshape(made, shape=x.shape)


def _column(n: Node, rows: Value, at: int) -> Value:
    part = n.builder.slice(rows, starts=[at], ends=[at + 1], axes=[2])
    return n.builder.squeeze(part, axes=[2])


def _apart(n: Node, corners: Value, label: Value) -> Value:
    """Boxes of different classes moved so far apart that they do not overlap."""
    b: Any = n.builder
    reach = b.add(b.sub(b.max(corners), b.min(corners)), 1.0)
    return b.add(corners, b.unsqueeze(b.mul(label, reach), axes=[2]))


def _in_format(n: Node, rows: Value, start: int, width: int) -> Value:
    """Rows with their boxes as corners, or as centres and sizes."""
    b: Any = n.builder
    given, wanted = n.text("in_format", "corner"), n.text("out_format", "corner")
    if given == wanted:
        return rows
    head, boxes, tail = b.split(rows, sizes=[start, 4, width - start - 4], axis=2)
    if wanted == "corner":
        boxes = from_centres(b, boxes)
    else:
        boxes = b.concat(*_from_corners(n, boxes), axis=2)
    return b.concat(head, boxes, tail, axis=2)
