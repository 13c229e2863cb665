"""SSD's layers: prior boxes, and the boxes that are detected."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.prototxt import Message
from tilewright.frontends.caffe.table import converts
from tilewright.frontends.common.boxes import from_centres, kept_boxes
from tilewright.graph import Array, Value
from tilewright.ir import minimum
from tilewright.support.errors import UserError

#: More boxes are refused.
_MOST_BOXES = 1 << 22


@converts("PriorBox")
def prior_box(n: Layer) -> Value:
    """1×2×(4·boxes): the corners of all boxes as fractions of the image, and their variances."""
    param = n.param("prior_box_param")
    rows, columns = n.extent(n[0], 2), n.extent(n[0], 3)
    height, width = _image(n, param)
    sizes = _sizes(param)
    if rows * columns * len(sizes) > _MOST_BOXES:
        raise UserError(f"{len(sizes)} boxes at each of {rows}×{columns} places")
    step = param.real("step", 0.0)
    step_h = param.real("step_h", step) or height / rows
    step_w = param.real("step_w", step) or width / columns
    offset = param.real("offset", 0.5)
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    centres = np.stack([(x + offset) * step_w, (y + offset) * step_h], -1)[:, :, None]
    half = np.array(sizes) / 2
    corners = np.concatenate([centres - half, centres + half], -1)
    corners = corners / [width, height, width, height]
    corners = np.clip(corners, 0, 1) if param.flag("clip") else corners
    variances = np.broadcast_to(_variances(param), corners.shape)
    made = np.stack([corners.ravel(), variances.ravel()])[None]
    return n.builder.constant(made.astype(np.float32))


def _image(n: Layer, param: Message) -> tuple[int, int]:
    size = param.integer("img_size", 0)
    height, width = (param.integer(f"img_{axis}", size) for axis in "hw")
    if not height or not width:
        height, width = n.extent(n[1], 2), n.extent(n[1], 3)
    if height < 1 or width < 1:
        raise UserError(f"an image of {height}×{width}")
    return height, width


def _sizes(param: Message) -> list[tuple[float, float]]:
    """Width and height of the boxes at each position."""
    least, most = param.reals("min_size"), param.reals("max_size")
    if not least or (most and len(most) != len(least)):
        raise UserError(f"{len(least)} least and {len(most)} greatest sizes of boxes")
    if any(not 0 < v < 1e6 for v in (*least, *most, *param.reals("aspect_ratio"))):
        raise UserError("sizes and ratios of boxes must be positive")
    ratios = [1.0]
    for ratio in param.reals("aspect_ratio"):
        if all(abs(ratio - r) >= 1e-6 for r in ratios):
            ratios += [ratio, 1 / ratio] if param.flag("flip", True) else [ratio]
    found: list[tuple[float, float]] = []
    for small, large in itertools.zip_longest(least, most):
        found.append((small, small))
        if large is not None:
            side = math.sqrt(small * large)
            found.append((side, side))
        wide = [r for r in ratios if abs(r - 1) >= 1e-6]
        found += [(small * math.sqrt(r), small / math.sqrt(r)) for r in wide]
    return found


def _variances(param: Message) -> Array:
    given = param.reals("variance") or [0.1]
    if len(given) not in (1, 4):
        raise UserError(f"there are {len(given)} variances", remedy="give one or four")
    return np.array(given * 4 if len(given) == 1 else given)


@converts("DetectionOutput")
def detection_output(n: Layer) -> Value:
    """1×1×found×7: image, class, score, and the corners of a box, best first within a class."""
    param, b = n.param("detection_output_param"), n.builder
    classes, batch = param.integer("num_classes", 0), n[0].shape[0]
    priors = n.extent(n[2], 2) // 4
    if not 1 <= classes <= 1 << 16 or priors < 1:
        raise UserError(f"{priors} boxes of {classes} classes")
    wanted = [c for c in range(classes) if c != param.integer("background_label_id", 0)]
    boxes, scores = _boxes(n, param, priors, classes), n[1]
    scores = b.transpose(b.reshape(scores, shape=[batch, priors, classes]), axes=[0, 2, 1])
    scores = b.gather(scores, np.array(wanted), axis=1)
    # The best of each class come first, so that kept ones are in order.
    most = param.message("nms_param").integer("top_k", -1)
    count = min(most, priors) if most > 0 else priors
    best, places = b.top_k(scores, k=count, axis=2)
    if param.flag("share_location", True):
        every = b.expand(b.unsqueeze(boxes, axes=[1]), shape=[batch, len(wanted), priors, 4])
    else:
        every = b.gather(boxes, np.array(wanted), axis=1)
    chosen = b.gather_nd(every, b.unsqueeze(places, axes=[3]), batch_dims=2)
    kept = _kept(n, param, chosen, best, count)
    return _rows(n, kept, chosen, best, wanted, count)


def _boxes(n: Layer, param: Message, priors: int, classes: int) -> Value:
    """The corners of all boxes, N×boxes×4, or N×classes×boxes×4 where each class has its own."""
    b, batch = n.builder, n[0].shape[0]
    given = b.reshape(n[2], shape=[1, 2, priors, 4])
    start, variance = (
        b.reshape(v, shape=[1, priors, 4]) for v in b.split(given, sizes=[1, 1], axis=1)
    )
    if param.flag("share_location", True):
        moves = b.reshape(n[0], shape=[batch, priors, 4])
    else:
        moves = b.reshape(n[0], shape=[batch, priors, classes, 4])
        moves = b.transpose(moves, axes=[0, 2, 1, 3])
        start, variance = (b.unsqueeze(v, axes=[1]) for v in (start, variance))
    if not param.flag("variance_encoded_in_target"):
        moves = b.mul(moves, variance)
    kind, axis = param.text("code_type", "CORNER"), moves.ndim - 1
    if kind in ("CORNER", "1"):
        boxes = b.add(start, moves)
    elif kind in ("CENTER_SIZE", "2"):
        low, high = b.split(start, sizes=[2, 2], axis=axis)
        size, centre = b.sub(high, low), b.mul(b.add(low, high), 0.5)
        shift, growth = b.split(moves, sizes=[2, 2], axis=axis)
        moved = b.add(centre, b.mul(shift, size))
        boxes = from_centres(b, b.concat(moved, b.mul(b.exp(growth), size), axis=axis))
    else:
        raise UserError(f"boxes coded as {kind[:40]}", remedy="use CORNER or CENTER_SIZE")
    return b.clip(boxes, 0.0, 1.0) if param.flag("clip") else boxes


def _kept(n: Layer, param: Message, boxes: Value, scores: Value, count: int) -> Value:
    """Which of N×(classes·count) boxes are kept."""
    b: Any = n.builder
    nms = param.message("nms_param")
    if nms.real("eta", 1.0) != 1.0:
        raise UserError("a threshold that changes (eta) is not supported")
    batch, classes = scores.shape[0], n.extent(scores, 1)
    least = param.real("confidence_threshold", -math.inf)
    kept = kept_boxes(
        b,
        b.reshape(boxes, shape=[batch * classes, count, 4]),
        b.reshape(scores, shape=[batch * classes, 1, count]),
        overlap=nms.real("nms_threshold", 0.3),
        least=least,
    )
    total = classes * count
    kept = b.greater(b.reshape(kept, shape=[batch, total]), 0.5)
    limit = param.integer("keep_top_k", -1)
    if not 0 <= limit < total:
        return kept
    flat = b.reshape(scores, shape=[batch, total])
    ranked = b.where(kept, flat, np.float32(-np.inf))
    _, best = b.top_k(ranked, k=minimum(limit, total), axis=1)
    ones = b.full(np.float32(1), shape=[batch, limit])
    nothing = b.full(np.float32(0), shape=[batch, total])
    among = b.greater(b.scatter_elements(nothing, best, ones, axis=1), 0.5)
    return b.logical_and(kept, among)


def _rows(
    n: Layer, kept: Value, boxes: Value, scores: Value, classes: list[int], count: int
) -> Value:
    b: Any = n.builder
    places = b.transpose(b.non_zero(kept), axes=[1, 0])
    total, batch = len(classes) * count, scores.shape[0]
    image, place = b.split(places, sizes=[1, 1], axis=1)
    label = b.gather(np.repeat(np.array(classes, np.float32), count), place, axis=0)
    score = b.gather_nd(b.reshape(scores, shape=[batch, total, 1]), places)
    found = b.gather_nd(b.reshape(boxes, shape=[batch, total, 4]), places)
    rows = b.concat(b.cast(image, dtype="float32"), label, score, found, axis=1)
    return b.unsqueeze(rows, axes=[0, 1])
