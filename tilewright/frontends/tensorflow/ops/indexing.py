"""Reductions, and elements by index: gather, scatter, one-hot, sorting, selection."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

# ---- reductions ---------------------------------------------------------------------------------

_REDUCTIONS: Final = {
    "All": "all",
    "Any": "any",
    "Max": "max",
    "Mean": "mean",
    "Min": "min",
    "Prod": "prod",
    "Sum": "sum",
    "EuclideanNorm": "l2",
}


@converts(*_REDUCTIONS)
def reduction(n: Node) -> Value:
    axes, x = n.numbers(1), n[0]
    if not axes and n.array(1).ndim:
        return x
    keeps = n.flag("keep_dims")
    image = _channels_first_mean(n, x, axes, keeps)
    if image is not None:
        return image
    return n.builder.emit(_REDUCTIONS[n.op], x, axes=axes, keepdims=keeps)


def _channels_first_mean(n: Node, x: Value, axes: list[int], keeps: bool) -> Value | None:
    """Whole images with channels last are pooled by operators on images."""
    if n.op not in ("Mean", "Max") or x.ndim != 4 or sorted(a % 4 for a in axes) != [1, 2]:
        return None
    if not x.dtype.is_float:
        return None
    b = n.builder
    op = "global_avg_pool" if n.op == "Mean" else "global_max_pool"
    pooled = b.emit(op, b.transpose(x, axes=[0, 3, 1, 2]))
    pooled = b.transpose(pooled, axes=[0, 2, 3, 1])
    return pooled if keeps else b.squeeze(pooled, axes=[1, 2])


@converts("ArgMax", "ArgMin")
def argmax(n: Node) -> Value:
    axis = n.number(1) if n.get(1) is not None else 0
    found = n.builder.emit(n.op.lower(), n[0], axis=axis, keepdims=False)
    wanted = n.dtype("output_type") if n.has("output_type") else found.dtype
    return found if found.dtype is wanted else n.builder.cast(found, dtype=wanted)


@converts("Cumsum", "Cumprod")
def cumulative(n: Node) -> Value:
    return n.builder.emit(
        n.op.lower(),
        n[0],
        axis=n.number(1),
        exclusive=n.flag("exclusive"),
        reverse=n.flag("reverse"),
    )


# ---- gather and scatter -------------------------------------------------------------------------


@converts("Gather", "GatherV2")
def gather(n: Node) -> Value:
    x, indices, b = n[0], n[1], n.builder
    axis = n.number(2) % max(x.ndim, 1) if n.get(2) is not None else 0
    batch = n.integer("batch_dims", 0)
    batch = batch + indices.ndim if batch < 0 else batch
    if batch == 0:
        return b.gather(x, indices, axis=axis)
    if axis != batch:
        raise UserError(f"{n.name} gathers along axis {axis} with {batch} batch axes")
    return b.gather_nd(x, b.unsqueeze(indices, axes=[-1]), batch_dims=batch)


@converts("GatherNd")
def gather_nd(n: Node) -> Value:
    return n.builder.gather_nd(n[0], n[1], batch_dims=n.integer("batch_dims", 0))


@converts("ScatterNd")
def scatter_nd(n: Node) -> Value:
    zeros = n.builder.full(n.scalar(0, n[1]), shape=n.dims(2))
    return _scattered(n, zeros, n[0], n[1], "add")


_SCATTERS: Final = {
    "TensorScatterAdd": "add",
    "TensorScatterMax": "max",
    "TensorScatterMin": "min",
    "TensorScatterUpdate": "none",
}


@converts(*_SCATTERS)
def tensor_scatter(n: Node) -> Value:
    return _scattered(n, n[0], n[1], n[2], _SCATTERS[n.op])


@converts("TensorScatterSub")
def tensor_scatter_sub(n: Node) -> Value:
    return _scattered(n, n[0], n[1], n.builder.neg(n[2]), "add")


def _scattered(n: Node, x: Value, indices: Value, updates: Value, reduction: str) -> Value:
    wide = n.builder.cast(indices, dtype="int64")
    return n.builder.scatter_nd(x, wide, updates, reduction=reduction)


@converts("SegmentSum", "UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin")
def segments(n: Node) -> Value:
    """Rows with the same segment number, combined."""
    x, b = n[0], n.builder
    if n.op == "SegmentSum":
        count: Any = int(n.array(1).max(initial=-1)) + 1
    else:
        count = n.dim(2)
    kind = {"Max": "max", "Min": "min"}.get(n.op[-3:], "add")
    numpy = np.dtype(x.dtype.numpy)
    bounds = np.finfo(numpy) if numpy.kind == "f" else np.iinfo(numpy)
    start = {"add": 0, "max": bounds.min, "min": bounds.max}[kind]
    zeros = b.full(n.scalar(start, x), shape=[count, *x.shape[n[1].ndim :]])
    return _scattered(n, zeros, b.unsqueeze(n[1], axes=[-1]), x, kind)


@converts("OneHot")
def one_hot(n: Node) -> Value:
    indices, b = n[0], n.builder
    values = b.concat(*(b.reshape(n[k], shape=[1]) for k in (3, 2)), axis=0)
    depth, axis = n.dim(1), n.integer("axis", -1)
    # The graph counts negative indices from the end; TensorFlow's match nothing.
    outside = b.less(indices, n.scalar(0, indices))
    known = n.find_array(0)
    if indices.dtype.is_signed and (known is None or (known < 0).any()):
        beyond = b.dims(elements=[depth], shape=[], dtype=indices.dtype)
        indices = b.where(outside, beyond, indices)
    return b.one_hot(indices, values, depth=depth, axis=axis)


# ---- order --------------------------------------------------------------------------------------


@converts("TopKV2", "TopK")
def top_k(n: Node) -> list[Value]:
    k = n.integer("k") if n.op == "TopK" else n.dim(1)
    values, indices = n.builder.top_k(n[0], k=k, axis=-1)
    wanted = n.dtype("index_type") if n.has("index_type") else "int32"
    return [values, n.builder.cast(indices, dtype=wanted)]


@converts("Where")
def where(n: Node) -> Value:
    """The positions of non-zero elements, one per row."""
    return n.builder.transpose(n.builder.non_zero(n[0]), axes=[1, 0])


@converts("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
def unique(n: Node) -> list[Value]:
    b = n.builder
    values, _, inverse, counts = b.unique(n[0], ordered=False)
    wanted = n.dtype("out_idx") if n.has("out_idx") else "int32"
    return [values, *(b.cast(v, dtype=wanted) for v in (inverse, counts))]


@converts("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppression")
def non_max_suppression(n: Node) -> Value:
    return _suppressed(n, n.get(3), n.get(4))


def _suppressed(n: Node, overlap: Value | None, least: Value | None) -> Value:
    b = n.builder
    boxes, scores = b.unsqueeze(n[0], axes=[0]), b.reshape(n[1], shape=[1, 1, -1])
    count = b.cast(n[2], dtype="int64")
    if n.op == "NonMaxSuppression":
        overlap = n.scalar(n.real("iou_threshold", 0.5), n[1])
    found = b.nms(boxes, scores, count, overlap, least)
    return b.cast(b.index(found, (slice(None), 2)), dtype="int32")


@converts("NonMaxSuppressionV5")
def soft_non_max_suppression(n: Node) -> list[Value]:
    sigma = n.find_array(5)
    if sigma is None or float(sigma):
        raise UserError(f"{n.name} lowers scores by their overlap", remedy="use a sigma of 0")
    kept = _suppressed(n, n.get(3), n.get(4))
    b = n.builder
    count = b.cast(b.reshape(b.shape_of(kept), shape=[]), dtype="int32")
    return [kept, b.gather(n[1], kept, axis=0), count]


@converts("SparseToDense")
def sparse_to_dense(n: Node) -> Value:
    x = n.builder.full(n[3], shape=n.dims(1))
    indices = n[0] if n[0].ndim == 2 else n.builder.reshape(n[0], shape=[-1, 1])
    return _scattered(n, x, indices, n[2], "none")


@converts("Bucketize")
def bucketize(n: Node) -> Value:
    """How many boundaries are at most equal to an element."""
    b, x = n.builder, n[0]
    bounds = n.constant(np.array(n.reals("boundaries"), np.float32), "float32")
    wide = b.unsqueeze(b.cast(x, dtype="float32"), axes=[-1])
    reached = b.greater_equal(wide, bounds)
    return b.sum(b.cast(reached, dtype="int32"), axes=[-1])
