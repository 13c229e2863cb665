"""Elements by index: gather, advanced indexing, selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.elementwise import truth
from tilewright.frontends.torch.ops.shapes import reshaped
from tilewright.frontends.torch.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import Expr


def vector(n: Node, x: Value) -> Value:
    """A tensor with at least one dimension."""
    return x if x.ndim else n.builder.reshape(x, shape=[1])


@converts("gather")
def gather(n: Node) -> Value:
    x, index = n.tensor("self"), n.tensor("index")
    made = n.builder.gather_elements(vector(n, x), vector(n, index), axis=n.axis("dim"))
    return reshaped(n, made, index.shape)


@converts("index_select")
def index_select(n: Node) -> Value:
    x, index = n.tensor("self"), vector(n, n.tensor("index"))
    if not x.ndim:
        return reshaped(n, n.builder.gather(vector(n, x), index, axis=0), [])
    return n.builder.gather(x, index, axis=n.axis("dim"))


@converts("take")
def take(n: Node) -> Value:
    flat = n.builder.reshape(n.tensor("self"), shape=[-1])
    return n.builder.gather(flat, n.tensor("index"), axis=0)


@converts("embedding")
def embedding(n: Node) -> Value:
    return n.builder.gather(n.tensor("weight"), n.tensor("indices"), axis=0)


# ---- x[i, j, …] ---------------------------------------------------------------------------------


class Places:
    """The parts of an advanced index: the indexed axes, and a tensor of indices for each."""

    def __init__(self, n: Node, x: Value, given: Sequence[Any]) -> None:
        self.axes: list[int] = []
        indices: list[Value] = []
        axis = 0
        for index in given:
            if index is None:
                axis += 1
                continue
            parts = _numbers(n, index) if index.dtype.is_bool else [n.cast(index, "int64")]
            indices += parts
            self.axes += range(axis, axis + len(parts))
            axis += len(parts)
        self.others = [k for k in range(x.ndim) if k not in self.axes]
        self.indices = _broadcast(n, indices)
        self.rank = self.indices[0].ndim
        #: Where the dimensions of the indices are in the result.
        adjacent = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        self.front = self.axes[0] if adjacent else 0

    def stacked(self, n: Node) -> Value:
        """All indices as rows of one tensor."""
        b = n.builder
        parts = [b.unsqueeze(i, axes=[self.rank]) for i in self.indices]
        return b.concat(*parts, axis=self.rank) if len(parts) > 1 else parts[0]

    def order(self) -> list[int]:
        """The dimensions of the result as positions in (indices, other dimensions)."""
        before, after = self.others[: self.front], self.others[self.front :]
        ahead = [self.rank + k for k in range(len(before))]
        behind = [self.rank + len(before) + k for k in range(len(after))]
        return [*ahead, *range(self.rank), *behind]


def _numbers(n: Node, mask: Value) -> list[Value]:
    """The indices of true elements, one tensor for each dimension."""
    b = n.builder
    found = b.non_zero(mask)
    rows = [b.slice(found, starts=[k], ends=[k + 1], axes=[0]) for k in range(mask.ndim)]
    return [b.squeeze(r, axes=[0]) for r in rows]


def _broadcast(n: Node, indices: list[Value]) -> list[Value]:
    if len(indices) == 1:
        return indices
    b, total = n.builder, indices[0]
    zero = n.constant(0, "int64")
    for index in indices[1:]:
        total = b.add(b.mul(total, zero), index)
    blank = b.mul(total, zero)
    same = all(i.ndim == blank.ndim and i.shape == blank.shape for i in indices)
    return indices if same else [b.add(i, blank) for i in indices]


@converts("index", "_unsafe_index")
def index_(n: Node) -> Value:
    x, given, b = n.tensor("self"), n["indices"], n.builder
    if all(i is None for i in given):
        return x
    places = Places(n, x, given)
    if len(places.axes) == 1:
        return b.gather(x, places.indices[0], axis=places.axes[0])
    front = b.transpose(x, axes=[*places.axes, *places.others])
    made = b.gather_nd(front, places.stacked(n))
    order = places.order()
    return made if order == sorted(order) else b.transpose(made, axes=order)


@converts("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(n: Node) -> Value:
    x, given, b = n.tensor("self"), n["indices"], n.builder
    values = n.tensor("values", x.dtype)
    mask = given[0]
    one = values.tensor.size == 1 and not n.get("accumulate", False)
    if one and len(given) == 1 and mask is not None and mask.dtype.is_bool:
        behind = list(range(mask.ndim, x.ndim))
        wide = b.unsqueeze(mask, axes=behind) if behind else mask
        return b.where(wide, reshaped(n, values, []), x)
    places = Places(n, x, given)
    back = places.order()
    shape = [*places.indices[0].shape, *(x.shape[k] for k in places.others)]
    wanted = [shape[k] for k in back]
    updates = n.expanded(values, wanted)
    if back != sorted(back):
        updates = b.transpose(updates, axes=back_of(back))
    order = [*places.axes, *places.others]
    front = b.transpose(x, axes=order) if order != sorted(order) else x
    how = "add" if n.get("accumulate", False) else "none"
    made = scattered(n, front, places.stacked(n), updates, how)
    return b.transpose(made, axes=back_of(order)) if order != sorted(order) else made


def scattered(n: Node, x: Value, places: Value, updates: Value, how: str) -> Value:
    """`scatter_nd`, also of truth values."""
    if how == "none" or not x.dtype.is_bool:
        return n.builder.scatter_nd(x, places, updates, reduction=how)
    wide = [n.cast(v, "uint8") for v in (x, updates)]
    return n.cast(n.builder.scatter_nd(wide[0], places, wide[1], reduction="max"), "bool")


def back_of(order: Sequence[int]) -> list[int]:
    """The inverse of a transpose."""
    return sorted(range(len(order)), key=lambda k: order[k])


# ---- parts that are replaced --------------------------------------------------------------------


@converts("slice_scatter")
def slice_scatter(n: Node) -> Value:
    x, b, axis = n.tensor("self"), n.builder, n.axis("dim", default=0)
    source, step = n.tensor("src", x.dtype), int(n.get("step", 1))
    extent = x.shape[axis]
    start, end = (n.get(k) for k in ("start", "end"))
    start = 0 if start is None else n.dim_of(start)
    count = source.shape[axis]
    if step == 1 and isinstance(start, int):
        first = _from_front(start, extent)
        if first is not None:
            del end
            return _spliced(n, x, source, axis, first, first + count)
    places = b.ramp(n.number(start, "int64"), n.constant(step, "int64"), size=count)
    return _put_rows(n, x, places, source, axis)


def _from_front(start: int, extent: Expr) -> Dim | None:
    if start >= 0:
        return start
    from tilewright.ir import Const

    return max(start + int(extent.value), 0) if isinstance(extent, Const) else None


def _spliced(n: Node, x: Value, source: Value, axis: int, first: Dim, last: Dim) -> Value:
    """The part before, the new part, the part after."""
    b = n.builder
    head = b.slice(x, starts=[0], ends=[first], axes=[axis]) if first != 0 else None
    tail = b.slice(x, starts=[last], ends=[(1 << 63) - 1], axes=[axis])
    parts = [p for p in (head, source, tail) if p is not None]
    return b.concat(*parts, axis=axis)


def _put_rows(
    n: Node, x: Value, places: Value, source: Value, axis: int, how: str = "none"
) -> Value:
    """Slices along an axis replaced by those of another tensor."""
    b = n.builder
    order = [axis, *(k for k in range(x.ndim) if k != axis)]
    moved = axis != 0
    front = b.transpose(x, axes=order) if moved else x
    rows = b.transpose(source, axes=order) if moved else source
    made = scattered(n, front, b.unsqueeze(places, axes=[1]), rows, "none")
    return b.transpose(made, axes=back_of(order)) if moved else made


@converts("select_scatter")
def select_scatter(n: Node) -> Value:
    x, b, axis = n.tensor("self"), n.builder, n.axis("dim")
    source = b.unsqueeze(n.tensor("src", x.dtype), axes=[axis])
    place = reshaped(n, n.number(n.dim("index"), "int64"), [1])
    return _put_rows(n, x, place, source, axis)


@converts("diagonal_scatter")
def diagonal_scatter(n: Node) -> Value:
    x, b, offset = n.tensor("self"), n.builder, int(n.get("offset", 0))
    first, second = n.axis("dim1", default=0), n.axis("dim2", default=1)
    others = [k for k in range(x.ndim) if k not in (first, second)]
    order = [first, second, *others]
    source = n.tensor("src", x.dtype)
    size = source.shape[-1]
    one = n.constant(1, "int64")
    rows = b.ramp(n.constant(max(-offset, 0), "int64"), one, size=size)
    columns = b.ramp(n.constant(max(offset, 0), "int64"), one, size=size)
    places = b.concat(*(b.unsqueeze(v, axes=[1]) for v in (rows, columns)), axis=1)
    updates = b.transpose(source, axes=[source.ndim - 1, *range(source.ndim - 1)])
    made = b.scatter_nd(b.transpose(x, axes=order), places, updates)
    return b.transpose(made, axes=back_of(order))


# ---- masks --------------------------------------------------------------------------------------


@converts("masked_fill")
def masked_fill(n: Node) -> Value:
    x = n.tensor("self")
    value = n.tensor("value", x.dtype)
    return n.builder.where(n.tensor("mask"), value, x)


@converts("masked_select")
def masked_select(n: Node) -> Value:
    x, mask, b = n.tensor("self"), n.tensor("mask"), n.builder
    blank = n.full(0, x.shape, "int64")
    wide = b.add(blank, n.cast(mask, "int64"))
    shape = wide.shape
    flat = b.reshape(n.expanded(x, shape), shape=[-1])
    return b.compress(flat, b.reshape(truth(n, wide), shape=[-1]), axis=0)


@converts("masked_scatter")
def masked_scatter(n: Node) -> Value:
    """The elements of the source, in order, where the mask is true."""
    x, b = n.tensor("self"), n.builder
    mask = n.expanded(n.tensor("mask"), n.shape)
    x = n.expanded(x, n.shape)
    source = b.reshape(n.tensor("source", x.dtype), shape=[-1])
    flat = n.cast(b.reshape(mask, shape=[-1]), "int64")
    rank = b.cumsum(flat, axis=0, exclusive=True)
    taken = b.gather(source, rank, axis=0, mode="clip")
    return b.where(mask, b.reshape(taken, shape=n.shape), x)


@converts("nonzero")
def nonzero(n: Node) -> Value:
    found = n.builder.non_zero(truth(n, n.tensor("self")))
    return n.builder.transpose(found, axes=[1, 0])


@converts("count_nonzero")
def count_nonzero(n: Node) -> Value:
    x = n.cast(truth(n, n.tensor("self")), "int64")
    return n.builder.sum(x, axes=n.axes("dim")) if x.ndim else x


@converts("isin")
def isin(n: Node) -> Value:
    b = n.builder
    x, values = n.operands(
        "elements" if "elements" in n else "element",
        "test_elements" if "test_elements" in n else "test_element",
    )
    grid = b.equal(b.unsqueeze(x, axes=[x.ndim]), b.reshape(values, shape=[-1]))
    found = b.any(grid, axes=[x.ndim])
    return b.logical_not(found) if n.get("invert", False) else found


@converts("bincount")
def bincount(n: Node) -> Value:
    x, b = n.cast(n.tensor("self"), "int64"), n.builder
    weights = n.maybe("weights")
    most = b.add(
        b.max(b.concat(x, n.constant([-1], "int64"), axis=0), axes=[0]), n.constant(1, "int64")
    )
    size = b.read(b.maximum(most, n.constant(int(n.get("minlength", 0)), "int64")), "bins")[0]
    dtype = n.dtype
    empty = n.full(0, [size], dtype)
    ones = n.full(1, x.shape, dtype) if weights is None else n.cast(weights, dtype)
    return b.scatter_elements(empty, x, ones, axis=0, reduction="add")


@converts("histc")
def histc(n: Node) -> Value:
    """The number of elements in each of some equally wide bins; the last one includes its end."""
    b = n.builder
    x = b.reshape(n.tensor("self"), shape=[-1])
    bins, low, high = int(n.get("bins", 100)), float(n.get("min", 0)), float(n.get("max", 0))
    wide = n.cast(x, "float64")
    if low == high:
        first, last = b.min(wide, axes=[0]), b.max(wide, axes=[0])
        same = b.equal(first, last)
        one = n.constant(1.0, "float64")
        first, last = b.where(same, b.sub(first, one), first), b.where(same, b.add(last, one), last)
    else:
        first, last = n.constant(low, "float64"), n.constant(high, "float64")
    count = n.constant(float(bins), "float64")
    place = b.floor(b.div(b.mul(b.sub(wide, first), count), b.sub(last, first)))
    place = b.minimum(
        b.maximum(place, n.constant(0.0, "float64")), n.constant(bins - 1.0, "float64")
    )
    inside = b.logical_and(b.greater_equal(wide, first), b.less_equal(wide, last))
    empty = n.full(0, [bins], n.dtype)
    places = n.cast(b.where(inside, place, n.constant(0.0, "float64")), "int64")
    return b.scatter_elements(empty, places, n.cast(inside, n.dtype), axis=0, reduction="add")
