"""Non-maximum suppression: of boxes that overlap, those with the highest scores are kept."""

# pyright: reportMissingParameterType=false

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, fresh_dim, known_dim, product
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.ir import Expr, Function, as_expr, minimum
from tilewright.support.errors import UserError
from tilewright.tensor import f32, i64, script, te


@op
def nms(
    boxes: Value,
    scores: Value,
    max_output: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center: bool = False,
) -> Type:
    """Rows (batch, class, box) of the boxes that are kept, for each class by falling scores.

    boxes is f32[batches, n, 4]: two opposite corners (y, x, y, x), or with `center` (x, y, width,
    height); scores is f32[batches, classes, n]. A box is kept if its score is above the threshold
    and if it overlaps none that is kept by more than `iou_threshold` (default 0); there are up to
    `max_output` (default 0) for each class.
    """
    if boxes.ndim != 3 or scores.ndim != 3:
        raise UserError(f"boxes is {boxes.type} and scores {scores.type}")
    wanted = [scores.shape[0], scores.shape[2], 4]
    require_same_shape(boxes.shape, wanted, "boxes and batches, scores, coordinates")
    for value in (boxes, scores, iou_threshold, score_threshold):
        if value is not None and value.dtype.name != "float32":
            raise UserError(f"{value} must be float32", remedy="cast it")
    return TensorType("int64", [fresh_dim("count"), 3])


@nms.reference
def nms_reference(
    boxes: Array,
    scores: Array,
    max_output: Array | None,
    iou_threshold: Array | None,
    score_threshold: Array | None,
    *,
    center: bool,
) -> Array:
    most = 0 if max_output is None else int(max_output.reshape(()))
    overlap = np.float32(0 if iou_threshold is None else iou_threshold.reshape(()))
    least = None if score_threshold is None else np.float32(score_threshold.reshape(()))
    rows: list[tuple[int, int, int]] = []
    for batch, label in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for box in np.argsort(-scores[batch, label], kind="stable").tolist():
            if len(kept) >= most:
                break
            high = least is None or scores[batch, label, box] > least
            corners = boxes[batch]
            if high and all(_iou(corners[box], corners[k], center) <= overlap for k in kept):
                kept.append(box)
        rows += [(batch, label, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def _iou(a: Array, b: Array, center: bool) -> np.float32:
    (a_low, a_high), (b_low, b_high) = _corners(a, center), _corners(b, center)
    sides = np.minimum(a_high, b_high) - np.maximum(a_low, b_low)
    areas = [np.prod(a_high - a_low), np.prod(b_high - b_low)]
    common = np.prod(np.maximum(sides, 0))
    if common <= 0 or min(areas) <= 0:
        return np.float32(0)
    return np.float32(common / (areas[0] + areas[1] - common))


def _corners(box: Array, center: bool) -> tuple[Array, Array]:
    first, second = box[:2], box[2:]
    if center:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


@nms.decompose
def nms_decompose(
    b: Any,
    boxes: Value,
    scores: Value,
    max_output: Value | None,
    iou_threshold: Value | None,
    score_threshold: Value | None,
    *,
    center: bool,
) -> Value:
    batches, classes, count = scores.shape
    keys = b.sort_key(
        b.reshape(scores, shape=[product([batches, classes]), count]), descending=True
    )
    order = b.reshape(b.order_rows(keys), shape=scores.shape)
    limit = _single(b, max_output, 0, "int64")
    rows, found = b.suppress(
        b.box_corners(boxes, center=center),
        scores,
        order,
        limit,
        _single(b, iou_threshold, 0.0, "float32"),
        _single(b, score_threshold, -np.inf, "float32"),
        most=product([batches, classes, _most(max_output, count)]),
    )
    (number,) = b.read(found, "count", natural=True)
    return b.slice(rows, starts=[0], ends=[number], axes=[0])


def _single(b: Any, value: Value | None, default: float, dtype: str) -> Value:
    if value is None:
        return b.constant([default], dtype)
    return b.reshape(b.cast(value, dtype=dtype), shape=[1])


def _most(max_output: Value | None, count: Expr) -> Expr:
    """The most boxes of a class, for which rows are allocated."""
    if max_output is None:
        return as_expr(0)
    known = None if max_output.known is None else known_dim(max_output.known.ravel()[0])
    return count if known is None else minimum(count, max(0, known))


@op
def box_corners(boxes: Value, *, center: bool = False) -> Type:
    """Boxes as their least and greatest coordinates."""
    return boxes.type


@box_corners.reference
def box_corners_reference(boxes: Array, *, center: bool) -> Array:
    first, second = boxes[..., :2], boxes[..., 2:]
    half = second / 2
    if center:
        return np.concatenate([first - half, first + half], -1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


@box_corners.compute
def box_corners_compute(boxes: te.Tensor, *, center: bool) -> te.Tensor:
    def element(*i: Expr) -> Expr:
        row, k = i[:-1], i[-1]
        first, second = boxes[(*row, k % 2)], boxes[(*row, k % 2 + 2)]
        if center:
            return te.select(k < 2, first - second / 2, first + second / 2)
        return te.select(k < 2, te.minimum(first, second), te.maximum(first, second))

    return te.compute(boxes.shape, element, name="box_corners")


@op
def suppress(
    corners: Value,
    scores: Value,
    order: Value,
    max_output: Value,
    iou_threshold: Value,
    score_threshold: Value,
    *,
    most: Dim,
) -> tuple[Type, Type]:
    """What `nms` keeps, given the order of the scores: rows, of which the count says how many."""
    return TensorType("int64", [most, 3]), TensorType("int64", [1])


@suppress.reference
def suppress_reference(corners: Array, scores: Array, order: Array, *rest: Array, most: int) -> Any:
    del order
    found = nms_reference(corners, scores, *rest, center=False)
    rows = np.zeros((most, 3), np.int64)
    rows[: len(found)] = found
    return rows, np.array([len(found)], np.int64)


@suppress.kernel
def suppress_kernel(*_operands: Value, most: Dim) -> Function:
    del most
    return _suppression()


@cache
def _suppression() -> Function:
    @script
    def suppress(
        corners=f32["b", "n", 4],
        scores=f32["b", "c", "n"],
        order=i64["b", "c", "n"],
        max_output=i64[1],
        iou_threshold=f32[1],
        score_threshold=f32[1],
        rows=i64["most", 3],
        count=i64[1],
    ):
        batches, classes, size = scores.shape
        found = 0
        for batch in range(batches):
            for label in range(classes):
                first = found
                for k in range(size):
                    box = order[batch, label, k]
                    if found - first >= max_output[0]:
                        break
                    if not scores[batch, label, box] > score_threshold[0]:
                        continue
                    top, left = corners[batch, box, 0], corners[batch, box, 1]
                    bottom, right = corners[batch, box, 2], corners[batch, box, 3]
                    area = (bottom - top) * (right - left)
                    is_kept = True
                    other = first
                    while is_kept and other < found:
                        rival = rows[other, 2]
                        top_, left_ = corners[batch, rival, 0], corners[batch, rival, 1]
                        bottom_, right_ = corners[batch, rival, 2], corners[batch, rival, 3]
                        area_ = (bottom_ - top_) * (right_ - left_)
                        height = max(min(bottom, bottom_) - max(top, top_), 0.0)
                        width = max(min(right, right_) - max(left, left_), 0.0)
                        common = height * width
                        if common > 0.0 and area > 0.0 and area_ > 0.0:
                            union = area + area_ - common
                            is_kept = common / union <= iou_threshold[0]
                        other += 1
                    if is_kept:
                        rows[found, 0] = batch
                        rows[found, 1] = label
                        rows[found, 2] = box
                        found += 1
        count[0] = found
        for k in range(found, rows.shape[0]):
            for column in range(3):
                rows[k, column] = 0

    return suppress
