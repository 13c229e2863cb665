"""Elements by index: gather, scatter, one-hot, sorting, selection, triangles."""

from __future__ import annotations

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import TensorType, Value
from tilewright.support.errors import UserError

# ---- gather and scatter -------------------------------------------------------------------------


@converts("Gather")
def gather(n: Node) -> Value:
    return n.builder.gather(n[0], n[1], axis=n.integer("axis", 0))


@converts("GatherElements")
def gather_elements(n: Node) -> Value:
    return n.builder.gather_elements(n[0], n[1], axis=n.integer("axis", 0))


@converts("GatherND")
def gather_nd(n: Node) -> Value:
    return n.builder.gather_nd(n[0], n[1], batch_dims=n.integer("batch_dims", 0))


@converts("Scatter", "ScatterElements")
def scatter_elements(n: Node) -> Value:
    return n.builder.scatter_elements(
        n[0], n[1], n[2], axis=n.integer("axis", 0), reduction=n.text("reduction", "none")
    )


@converts("ScatterND")
def scatter_nd(n: Node) -> Value:
    return n.builder.scatter_nd(n[0], n[1], n[2], reduction=n.text("reduction", "none"))


@converts("TensorScatter")
def tensor_scatter(n: Node) -> Value:
    mode = n.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise UserError(f"the mode is {mode!r}", remedy="use linear or circular")
    return n.builder.tensor_scatter(
        n[0], n[1], n.get(2), axis=n.integer("axis", -2), circular=mode == "circular"
    )


@converts("OneHot")
def one_hot(n: Node) -> Value:
    indices = n[0]
    if indices.dtype.is_float:
        indices = n.builder.cast(indices, dtype="int64")
    depth = n[1]
    if depth.dtype.is_float:
        depth = n.builder.cast(depth, dtype="int64")
    size = n.dim_of(depth, "the depth")
    return n.builder.one_hot(indices, n[2], depth=size, axis=n.integer("axis", -1))


# ---- order --------------------------------------------------------------------------------------


@converts("TopK", until=10)
def top_k_by_attribute(n: Node) -> list[Value]:
    return list(n.builder.top_k(n[0], k=n.integer("k"), axis=n.integer("axis", -1)))


@converts("TopK", since=10)
def top_k(n: Node) -> list[Value]:
    return list(
        n.builder.top_k(
            n[0],
            k=n.dim(1),
            axis=n.integer("axis", -1),
            largest=n.flag("largest", True),
        )
    )


@converts("ReverseSequence")
def reverse_sequence(n: Node) -> Value:
    return n.builder.reverse_sequence(
        n[0], n[1], batch_axis=n.integer("batch_axis", 1), time_axis=n.integer("time_axis", 0)
    )


# ---- sizes that depend on data ------------------------------------------------------------------


@converts("NonZero")
def non_zero(n: Node) -> Value:
    return n.builder.non_zero(n[0])


@converts("Compress")
def compress(n: Node) -> Value:
    return n.builder.compress(n[0], n[1], axis=n.integer("axis", None))


@converts("Unique")
def unique(n: Node) -> list[Value]:
    return list(
        n.builder.unique(n[0], axis=n.integer("axis", None), ordered=n.flag("sorted", True))
    )


@converts("NonMaxSuppression")
def non_max_suppression(n: Node) -> Value:
    scalars = [n.get(k) for k in (2, 3, 4)]
    return n.builder.nms(n[0], n[1], *scalars, center=n.flag("center_point_box"))


# ---- triangles and ranges -----------------------------------------------------------------------


@converts("Trilu")
def trilu(n: Node) -> Value:
    k = n.dim(1) if n.get(1) is not None else 0
    return n.builder.trilu(n[0], k=k, upper=n.flag("upper", True))


@converts("EyeLike")
def eye_like(n: Node) -> Value:
    if n[0].ndim != 2:
        raise UserError(f"{n[0]} is no matrix")
    rows, columns = n[0].shape
    dtype = n.dtype("dtype", n[0].dtype)
    return n.builder.eye(rows=rows, columns=columns, k=n.integer("k", 0), dtype=dtype)


@converts("Range")
def range_(n: Node) -> Value:
    start, limit, delta = (scalar(n, n[k]) for k in range(3))
    return n.builder.range(start, limit, delta)


def scalar(n: Node, value: Value) -> Value:
    """A tensor of one element as one without dimensions."""
    if isinstance(value.type, TensorType) and value.ndim:
        return n.builder.reshape(value, shape=[])
    return value
