"""Elements written to positions given by a tensor."""

from __future__ import annotations

from typing import Any, Final

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.indexing import vector
from tilewright.frontends.torch.ops.shapes import reshaped
from tilewright.frontends.torch.table import converts
from tilewright.frontends.torch.tensors import element_type
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: torch's names of reductions, the graph's, and neutral elements.
_REDUCTIONS: Final = {
    "add": "add",
    "sum": "add",
    "mean": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


def _nothing(x: Value, how: str) -> Any:
    """The neutral element of a reduction."""
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    if x.dtype.is_float:
        return float("-inf") if how == "max" else float("inf")
    return x.dtype.min_value if how == "max" else x.dtype.max_value


@converts("scatter", "scatter_add", "scatter_reduce")
def scatter(n: Node) -> Value:
    x, index = n.tensor("self"), vector(n, n.tensor("index"))
    shape, axis = x.shape, n.axis("dim")
    x = vector(n, x)
    source = n["src"] if "src" in n else n["value"]
    if isinstance(source, Value) and source.ndim:
        updates = _first(n, n.cast(source, x.dtype), index)
    else:
        updates = n.full(source, index.shape, x.dtype)
    reduce = "add" if n.op.startswith("scatter_add") else n.get("reduce")
    kept = bool(n.get("include_self", True))
    return reshaped(n, put(n, x, index, updates, axis, reduce, kept), shape)


def _first(n: Node, source: Value, index: Value) -> Value:
    """The part of the source for which there are indices."""
    axes = [k for k in range(index.ndim) if source.shape[k] is not index.shape[k]]
    if not axes:
        return source
    ends = [index.shape[k] for k in axes]
    return n.builder.slice(source, starts=[0] * len(axes), ends=ends, axes=axes)


def put(
    n: Node, x: Value, index: Value, updates: Value, axis: int, reduce: str | None, kept: bool
) -> Value:
    """`scatter_elements` with one of torch's reductions; unless `kept`, old elements do not count
    where new ones are written."""
    b = n.builder
    if index.tensor.size == 0:
        return b.identity(x)
    if reduce is None:
        return b.scatter_elements(x, index, updates, axis=axis)
    how = _REDUCTIONS[reduce]
    narrow = x.dtype
    if narrow.is_bool:
        x, updates = n.cast(x, "uint8"), n.cast(updates, "uint8")
        how = {"add": "max", "mul": "min"}.get(how, how)
    start = x
    if not kept:
        blank = n.full(_nothing(x, how), index.shape, x.dtype)
        start = b.scatter_elements(x, index, blank, axis=axis)
    made = b.scatter_elements(start, index, updates, axis=axis, reduction=how)
    if reduce == "mean":
        made = _mean(n, x, made, index, axis, kept)
    return n.cast(made, narrow)


def _mean(n: Node, x: Value, total: Value, index: Value, axis: int, kept: bool) -> Value:
    b = n.builder
    count = n.full(1 if kept else 0, x.shape, x.dtype)
    one = n.full(1, index.shape, x.dtype)
    count = b.scatter_elements(count, index, one, axis=axis, reduction="add")
    count = b.maximum(count, n.like(1, count))
    if x.dtype.is_float:
        return b.div(total, count)
    return b.floor_div(total, count)


def _rows(n: Node, x: Value, index: Value, axis: int) -> Value:
    """An index for each element of slices along an axis."""
    shape = [*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]]
    behind = list(range(1, x.ndim - axis))
    wide = n.builder.unsqueeze(index, axes=behind) if behind else index
    return n.expanded(wide, shape)


@converts("index_add", "index_copy", "index_reduce", "index_fill")
def index_rows(n: Node) -> Value:
    """Slices along an axis: added, replaced, reduced or filled."""
    x, index = n.tensor("self"), vector(n, n.tensor("index"))
    shape, axis, name = x.shape, n.axis("dim"), n.op.partition(".")[0]
    x = vector(n, x)
    places = _rows(n, x, index, axis)
    if name == "index_fill":
        updates = n.expanded(n.tensor("value", x.dtype), places.shape)
        return reshaped(n, put(n, x, places, updates, axis, None, True), shape)
    source = vector(n, n.tensor("source", x.dtype))
    updates = reshaped(n, source, places.shape)
    alpha = n.get("alpha", 1)
    if alpha != 1:
        updates = n.builder.mul(updates, n.like(alpha, updates))
    reduce = {"index_add": "add", "index_copy": None}.get(name, n.get("reduce"))
    made = put(n, x, places, updates, axis, reduce, bool(n.get("include_self", True)))
    return reshaped(n, made, shape)


@converts("put")
def put_flat(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    flat = b.reshape(x, shape=[-1])
    index, source = (b.reshape(n.tensor(k), shape=[-1]) for k in ("index", "source"))
    reduce = "add" if n.get("accumulate", False) else None
    return reshaped(n, put(n, flat, index, n.cast(source, x.dtype), 0, reduce, True), x.shape)


@converts("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(n: Node) -> list[Value]:
    """Rows of a table summed, averaged or maximized by bags; offsets say where bags begin."""
    b, weight, mode = n.builder, n.tensor("weight"), int(n.get("mode", 0))
    indices, offsets = (n.tensor(k, "int64") for k in ("indices", "offsets"))
    one, dtype = n.constant(1, "int64"), weight.dtype
    here = b.ramp(n.constant(0, "int64"), one, size=indices.shape[0])
    begun = b.less_equal(b.unsqueeze(offsets, axes=[0]), b.unsqueeze(here, axes=[1]))
    bag = b.sub(b.sum(n.cast(begun, "int64"), axes=[1], keepdims=True), one)
    rows = b.gather(weight, indices, axis=0)
    weights = n.maybe("per_sample_weights")
    if weights is not None:
        rows = b.mul(rows, b.unsqueeze(weights, axes=[1]))
    counted = b.not_equal(indices, n.constant(int(n.get("padding_idx", -1)), "int64"))
    counts = b.unsqueeze(n.cast(counted, dtype), axes=[1])
    bags = n.shape[0]
    width = weight.shape[1]
    total = b.scatter_nd(n.full(0, [bags, 1], dtype), bag, counts, reduction="add")
    if mode == 2:
        least = n.like(float("-inf"), rows)
        seen = b.where(b.unsqueeze(counted, axes=[1]), rows, least)
        made = b.scatter_nd(b.full(least, shape=[bags, width]), bag, seen, reduction="max")
        made = b.where(b.greater(total, n.like(0, total)), made, n.like(0, made))
    else:
        seen = b.mul(rows, counts)
        made = b.scatter_nd(n.full(0, [bags, width], dtype), bag, seen, reduction="add")
        made = b.div(made, b.maximum(total, n.like(1, total))) if mode == 1 else made
    # For derivatives: the bag of each index, sizes of bags, rows of the greatest elements.
    bags_of = b.squeeze(bag, axes=[1])
    sizes = b.squeeze(total, axes=[1])
    greatest = _greatest_rows(n, made, seen, bag, indices) if mode == 2 else sizes
    rest = zip((bags_of, sizes, greatest), n.results[1:], strict=True)
    return [made, *(_as_far_as_asked(n, v, m) for v, m in rest)]


def _as_far_as_asked(n: Node, value: Value, meta: Any) -> Value:
    """A result that torch leaves empty in some modes."""
    dtype, shape = element_type(meta.dtype), n.shape_of(meta)
    return n.full(0, shape, dtype) if 0 in shape else n.cast(value, dtype)


def _greatest_rows(n: Node, made: Value, rows: Value, bag: Value, indices: Value) -> Value:
    """The row of the table of each greatest element: the first one in its bag."""
    b, count = n.builder, n.number(indices.shape[0], "int64")
    here = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=indices.shape[0])
    is_greatest = b.equal(rows, b.gather_nd(made, bag))
    places = b.where(is_greatest, b.unsqueeze(here, axes=[1]), count)
    first = b.scatter_nd(b.full(count, shape=made.shape), bag, places, reduction="min")
    last = b.maximum(b.sub(count, n.constant(1, "int64")), n.constant(0, "int64"))
    return b.gather(indices, b.minimum(first, last), axis=0)


#: The initial element of each reduction, and how segments are reduced.
_SEGMENTS: Final = {
    "sum": (0.0, "add"),
    "mean": (0.0, "add"),
    "prod": (1.0, "mul"),
    "max": (float("-inf"), "max"),
    "min": (float("inf"), "min"),
}


@converts("segment_reduce")
def segment_reduce(n: Node) -> Value:
    """A reduction of consecutive segments of an axis, some of which may be empty."""
    b, x, axis = n.builder, n.tensor("data"), n.axis("axis", n.rank("data"), 0)
    if n.get("indices") is not None:
        raise UserError("segments given by indices", remedy="give their lengths or offsets")
    lead, rest = x.shape[:axis], x.shape[axis + 1 :]
    starts, lengths = _segments(n, axis)
    count = lengths.shape[-1]
    # Batches×elements×segments
    one = n.constant(1, "int64")
    here = b.ramp(n.constant(0, "int64"), one, size=x.shape[axis])
    starts = b.reshape(starts, shape=[-1, 1, count])
    begun = b.less_equal(starts, b.unsqueeze(here, axes=[1]))
    own = b.sub(b.sum(n.cast(begun, "int64"), axes=[2]), one)
    batches = b.ramp(n.constant(0, "int64"), n.number(count, "int64"), size=starts.shape[0])
    places = b.reshape(b.add(own, b.unsqueeze(batches, axes=[1])), shape=[-1, 1])
    kind, initial = str(n["reduce"]), n.get("initial")
    start, reduction = _SEGMENTS[kind]
    first = n.full(start if initial is None else initial, [starts.shape[0] * count, *rest], x.dtype)
    rows = b.reshape(x, shape=[starts.shape[0] * x.shape[axis], *rest])
    made = b.scatter_nd(first, places, rows, reduction=reduction)
    made = b.reshape(made, shape=[*lead, count, *rest])
    if kind != "mean":
        return made
    sizes = b.reshape(n.cast(lengths, x.dtype), shape=[*lead, count, *[1] * len(rest)])
    none = n.like(float("nan") if initial is None else initial, x)
    return b.where(b.greater(sizes, n.like(0, sizes)), b.div(made, sizes), none)


def _segments(n: Node, axis: int) -> tuple[Value, Value]:
    """Where segments begin, and how long they are."""
    b = n.builder
    if n.get("lengths") is not None:
        lengths = n.tensor("lengths", "int64")
        return b.sub(b.cumsum(lengths, axis=axis), lengths), lengths
    offsets = n.tensor("offsets", "int64")
    first = b.slice(offsets, starts=[0], ends=[-1], axes=[axis])
    behind = b.slice(offsets, starts=[1], ends=[offsets.shape[axis]], axes=[axis])
    return first, b.sub(behind, first)
