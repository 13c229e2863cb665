"""Boxes: of those that overlap, the ones with the highest scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.tflite.fixed_point import real
from tilewright.frontends.tflite.flexbuffer import read_map
from tilewright.frontends.tflite.load import CUSTOM
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr
from tilewright.support.errors import UserError


@converts("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(n: Node) -> list[Value]:
    """Boxes (y, x, y, x), scores, how many to keep, and the thresholds of overlap and score."""
    b = n.builder
    if n.op.endswith("V5") and np.any(n.array(5)):
        raise UserError("scores that fall with the overlap (soft_nms_sigma) are not supported")
    limit = n.dim(2)
    scores = b.reshape(n[1], shape=[1, 1, n[1].shape[0]])
    thresholds = [b.reshape(n[k], shape=[1]) for k in (3, 4)]
    most = b.dims(elements=[as_expr(limit)], shape=[1], dtype="int64")
    rows = b.nms(b.unsqueeze(n[0], axes=[0]), scores, most, *thresholds)
    kept = b.index(rows, (slice(None), 2))
    count = b.cast(b.size_of(kept), dtype="int32")
    places = _filled(n, b.cast(kept, dtype="int32"), limit)
    if n.op.endswith("V4"):
        return [places, count]
    return [places, _filled(n, b.gather(n[1], kept), limit), count]


def _filled(n: Node, x: Value, size: Dim) -> Value:
    """`x` with zeros after it up to a size."""
    rest = as_expr(size) - x.shape[0]
    return n.builder.pad(x, before=[0] * x.ndim, after=[rest, *[0] * (x.ndim - 1)])


# ---- SSD's --------------------------------------------------------------------------------------


@converts("TFLite_Detection_PostProcess", domain=CUSTOM)
def detection_postprocess(n: Node) -> list[Value]:
    """Encoded boxes, scores of classes and anchors -> boxes, classes, scores and how many."""
    how, b = read_map(n.operator.custom), n.builder
    scores = real(n, 1)
    classes = how["num_classes"]
    background = int(scores.tensor.static_shape[2]) - classes
    if background not in (0, 1) or how["max_detections"] < 1:
        raise UserError(f"the scores are {scores} for {classes} classes")
    scores = b.slice(scores, starts=[background], ends=[background + classes], axes=[2])
    boxes = _decoded(n, how)
    if how.get("use_regular_nms"):
        return _regular(n, how, boxes, scores)
    return _fast(n, how, boxes, scores)


def _decoded(n: Node, how: dict[str, Any]) -> Value:
    """Boxes (y, x, y, x) of n×4 from centres and sizes beside anchors."""
    b = n.builder
    coded = b.squeeze(b.slice(real(n, 0), starts=[0], ends=[4], axes=[2]), axes=[0])
    anchors = real(n, 2)
    scales = np.array([how[f"{a}_scale"] for a in "yxhw"], np.float32)
    parts = b.div(coded, n.constant(scales))
    size = b.index(anchors, (slice(None), slice(2, 4)))
    middle = b.index(parts, (slice(None), slice(0, 2))) * size + b.index(
        anchors, (slice(None), slice(0, 2))
    )
    half = b.exp(b.index(parts, (slice(None), slice(2, 4)))) * size * np.float32(0.5)
    return b.concat(b.sub(middle, half), b.add(middle, half), axis=1)


def _suppressed(n: Node, how: dict[str, Any], boxes: Value, scores: Value, most: int) -> Value:
    """Rows (batch, class, box) of what is kept; scores are classes×boxes."""
    least = np.nextafter(np.float32(how["nms_score_threshold"]), np.float32(-np.inf))
    b = n.builder
    return b.nms(
        b.unsqueeze(boxes, axes=[0]),
        b.unsqueeze(scores, axes=[0]),
        n.constant(np.array([most], np.int64)),
        n.constant(np.array([how["nms_iou_threshold"]], np.float32)),
        n.constant(np.array([least], np.float32)),
    )


def _fast(n: Node, how: dict[str, Any], boxes: Value, scores: Value) -> list[Value]:
    """Boxes compete by the best of their classes; each kept one has so many classes."""
    b = n.builder
    most, each = how["max_detections"], how["max_classes_per_detection"]
    count = min(each, how["num_classes"])
    best, classes = b.top_k(b.squeeze(scores, axes=[0]), k=count, axis=1)
    highest = b.reshape(b.index(best, (slice(None), slice(0, 1))), shape=[1, -1])
    kept = b.index(_suppressed(n, how, boxes, highest, most), (slice(None), 2))

    def gathered(x: Value) -> Value:
        return _filled(n, b.gather(x, kept), most)

    chosen = gathered(boxes)
    if each > 1:
        chosen = b.reshape(
            b.tile(b.unsqueeze(chosen, axes=[1]), repeats=[1, each, 1]), shape=[-1, 4]
        )
    wide = {"before": [0, 0], "after": [0, each - count]}
    columns = [
        b.reshape(b.pad(gathered(v), **wide), shape=[1, most * each])
        for v in (b.cast(classes, dtype="float32"), best)
    ]
    count = b.reshape(b.cast(b.size_of(kept), dtype="float32"), shape=[1])
    return [b.unsqueeze(chosen, axes=[0]), *columns, count]


def _regular(n: Node, how: dict[str, Any], boxes: Value, scores: Value) -> list[Value]:
    """Each class by itself; then the best of all."""
    b = n.builder
    most, each = how["max_detections"], how.get("detections_per_class", 100)
    by_class = b.transpose(b.squeeze(scores, axes=[0]), axes=(1, 0))
    rows = _suppressed(n, how, boxes, by_class, each)
    found = b.gather_nd(by_class, b.index(rows, (slice(None), slice(1, 3))))
    # What fills the list up to its size is below every score.
    low = n.constant(np.float32(-np.inf))
    filled = b.pad(found, low, before=[0], after=[most])
    best, order = b.top_k(filled, k=most, axis=0)
    is_there = b.greater(best, low)
    picked = b.gather(b.pad(rows, before=[0, 0], after=[most, 0]), order)
    zero = n.constant(np.float32(0))
    chosen = b.gather(boxes, b.index(picked, (slice(None), 2)))
    chosen = b.where(b.unsqueeze(is_there, axes=[1]), chosen, zero)
    classes = b.cast(b.index(picked, (slice(None), 1)), dtype="float32")
    columns = [b.unsqueeze(b.where(is_there, v, zero), axes=[0]) for v in (classes, best)]
    count = b.reshape(b.sum(b.cast(is_there, dtype="float32")), shape=[1])
    return [b.unsqueeze(chosen, axes=[0]), *columns, count]
