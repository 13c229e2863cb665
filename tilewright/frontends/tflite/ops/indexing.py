"""Elements by index."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.ops.shapes import axis_of
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value
from tilewright.ir import as_expr
from tilewright.support.errors import UserError


@converts("GATHER")
def gather(n: Node) -> Value:
    x, indices, b = n[0], n[1], n.builder
    axis = axis_of(n.option("axis"), x.ndim)
    batch = axis_of(n.option("batch_dims"), indices.ndim + 1)
    if not batch:
        return b.gather(x, indices, axis=axis)
    if batch > axis:
        raise UserError(f"{batch} dimensions of batches come after axis {axis}")
    # Each batch has its own part of the indices: the axis is moved after the batches.
    order = [*range(batch), axis, *(k for k in range(batch, x.ndim) if k != axis)]
    moved = b.transpose(x, axes=order) if axis != batch else x
    flat = b.unsqueeze(b.cast(indices, dtype="int64"), axes=[indices.ndim])
    y = b.gather_nd(moved, flat, batch_dims=batch)
    if axis == batch:
        return y
    inner = indices.ndim - batch
    before = axis - batch
    back = [
        *range(batch),
        *range(batch + inner, batch + inner + before),
        *range(batch, batch + inner),
        *range(batch + inner + before, y.ndim),
    ]
    return b.transpose(y, axes=back)


@converts("GATHER_ND")
def gather_nd(n: Node) -> Value:
    return n.builder.gather_nd(n[0], n.builder.cast(n[1], dtype="int64"))


@converts("EMBEDDING_LOOKUP")
def embedding_lookup(n: Node) -> Value:
    """Rows of a table; if it is quantized, the real numbers that they represent."""
    from tilewright.frontends.tflite.fixed_point import dequantized

    rows = n.builder.gather(n[1], n[0], axis=0)
    how = n.tensor(1).quantization
    if rows.dtype.is_integer and n.out_dtype().is_float and how is not None:
        if how.is_single:
            return dequantized(n, rows, how)
        scales = n.builder.gather(n.constant(how.scales.astype(np.float32)), n[0], axis=0)
        real = n.builder.cast(rows, dtype="float32")
        scales = n.builder.reshape(scales, shape=[*n[0].shape, *[1] * (n[1].ndim - 1)])
        return n.builder.mul(real, scales)
    return rows


@converts("SCATTER_ND")
def scatter_nd(n: Node) -> Value:
    """Updates, added up where they coincide, in a tensor of zeros."""
    empty = n.builder.full(n.scalar(0, n[1]), shape=n.dims(2))
    return n.builder.scatter_nd(empty, n.builder.cast(n[0], dtype="int64"), n[1], reduction="add")


@converts("SPARSE_TO_DENSE")
def sparse_to_dense(n: Node) -> Value:
    """Positions, the shape, values at the positions, and the value elsewhere."""
    b = n.builder
    places, shape = b.cast(n[0], dtype="int64"), n.dims(1)
    count = 1 if places.ndim == 0 else places.shape[0]
    width = len(shape)
    places = b.reshape(places, shape=[count, width])
    values = b.expand(n[2], shape=[count])
    empty = b.full(b.reshape(n[3], shape=[]), shape=shape)
    return b.scatter_nd(empty, places, values)


@converts("ONE_HOT")
def one_hot(n: Node) -> Value:
    b = n.builder
    on, off = (b.reshape(n[k], shape=[1]) for k in (2, 3))
    axis = n.option("axis")
    axis = n[0].ndim if axis == -1 else axis
    # Indices outside match nothing, not even those below zero.
    depth = n.dim(1)
    index = b.cast(n[0], dtype="int64")
    is_below = b.less(index, n.scalar(0, index))
    size = b.dims(elements=[as_expr(depth)], shape=[], dtype="int64")
    held = b.where(is_below, size, index)
    return b.one_hot(held, b.concat(off, on, axis=0), depth=depth, axis=axis)


@converts("WHERE")
def where(n: Node) -> Value:
    """The positions of all elements that are not zero, one per row."""
    return n.builder.transpose(n.builder.non_zero(n[0]), axes=(1, 0))


@converts("UNIQUE")
def unique(n: Node) -> list[Value]:
    """The distinct elements in the order of appearance, and for each element its position there."""
    values, _, inverse, _ = n.builder.unique(n[0], ordered=False)
    return [values, n.builder.cast(inverse, dtype=n.out_dtype(1))]


@converts("BUCKETIZE")
def bucketize(n: Node) -> Value:
    """How many of the boundaries are at most equal to each element."""
    b, x = n.builder, n[0]
    limits = np.asarray(n.option("boundaries"), np.float32)
    wide = b.cast(b.unsqueeze(x, axes=[x.ndim]), dtype="float32")
    reached = b.greater_equal(wide, n.constant(limits))
    return b.sum(b.cast(reached, dtype="int32"), axes=[x.ndim])


@converts("MATRIX_DIAG")
def matrix_diag(n: Node) -> Value:
    """Matrices with these diagonals."""
    b, x = n.builder, n[0]
    size = x.shape[-1]
    inside = b.eye(rows=size, columns=size, dtype="bool")
    return b.where(inside, b.unsqueeze(x, axes=[x.ndim]), n.scalar(0, x))


@converts("MATRIX_SET_DIAG")
def matrix_set_diag(n: Node) -> Value:
    """Matrices with other diagonals."""
    b, x, diagonal = n.builder, n[0], n[1]
    rows, columns = x.shape[-2:]
    inside = b.eye(rows=rows, columns=columns, dtype="bool")
    return b.where(inside, b.unsqueeze(diagonal, axes=[diagonal.ndim]), x)


_SEGMENTS = {
    "SEGMENT_SUM": ("add", None),
    "UNSORTED_SEGMENT_SUM": ("add", None),
    "UNSORTED_SEGMENT_PROD": ("mul", 1),
    "UNSORTED_SEGMENT_MAX": ("max", "least"),
    "UNSORTED_SEGMENT_MIN": ("min", "most"),
}


@converts(*_SEGMENTS)
def segments(n: Node) -> Value:
    """Rows combined by the numbers of their segments."""
    b, x = n.builder, n[0]
    how, empty = _SEGMENTS[n.op]
    ids = b.cast(n[1], dtype="int64")
    count = int(n.array(1).max(initial=-1)) + 1 if n.op == "SEGMENT_SUM" else n.dim(2)
    first = {None: 0, 1: 1, "least": x.dtype.min_value, "most": x.dtype.max_value}[empty]
    start = b.full(n.scalar(first, x), shape=[count, *x.shape[ids.ndim :]])
    return b.scatter_nd(start, b.unsqueeze(ids, axes=[ids.ndim]), x, reduction=how)
