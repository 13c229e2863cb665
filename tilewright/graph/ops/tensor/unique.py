"""The distinct elements, or slices, of a tensor."""

# pyright: reportMissingParameterType=false

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, fresh_dim, product
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import DType, Function
from tilewright.support.errors import UserError
from tilewright.tensor import ElementType, alloc, i64, script


@op
def unique(
    x: Value, *, axis: int | None = None, ordered: bool = True
) -> tuple[Type, Type, Type, Type]:
    """The different slices along `axis` (elements, without one), sorted or as they first come;

    where each first is; for each of `x`, which of them it is; and how often each is there.
    """
    require_kind("computable", x)
    count = fresh_dim("count")
    several = TensorType("int64", [count])
    if axis is None:
        inverse = TensorType("int64", [product(x.shape)])
        return x.tensor.with_shape([count]), several, inverse, several
    axis = axis_of(axis, x.ndim)
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    return x.tensor.with_shape(shape), several, TensorType("int64", [x.shape[axis]]), several


@unique.reference
def unique_reference(
    x: Array, *, axis: int | None, ordered: bool
) -> tuple[Array, Array, Array, Array]:
    rows = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0)
    rows = rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
    first: dict[tuple[Any, ...], int] = {}
    inverse = np.array([first.setdefault(_row_key(r), len(first)) for r in rows], np.int64)
    keys = [*first]
    order = np.arange(len(keys))
    if ordered:
        order = np.array(sorted(order, key=keys.__getitem__), np.int64)
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    inverse = rank[inverse] if len(keys) else inverse
    places = np.array([np.flatnonzero(inverse == n)[0] for n in range(len(keys))], np.int64)
    counts = np.bincount(inverse, minlength=len(keys)).astype(np.int64)
    values = x.ravel()[places] if axis is None else np.take(x, places, axis)
    return values, places, inverse, counts


def _row_key(row: Array) -> tuple[Any, ...]:
    """NaN is above all, and equal to itself."""
    return tuple((1, 0.0) if v != v else (0, v.item() if hasattr(v, "item") else v) for v in row)


@unique.decompose
def unique_decompose(
    b: Any, x: Value, *, axis: int | None, ordered: bool
) -> tuple[Value, Value, Value, Value]:
    if axis is None:
        x, axis = b.reshape(x, shape=[product(x.shape)]), 0
    keys = b.sort_key(_as_rows(b, x, axis_of(axis, x.ndim)))
    first, inverse, counts, count = b.group_rows(keys, b.lexicographic(keys))
    (number,) = b.read(count, "count", natural=True)
    first, counts = (b.slice(v, starts=[0], ends=[number], axes=[0]) for v in (first, counts))
    if not ordered:
        by_first = _order(b, first)
        first, counts = (b.gather(v, by_first, mode="clip") for v in (first, counts))
        # argsort of the argsort gives each element's rank.
        inverse = b.gather(_order(b, by_first), inverse, mode="clip")
    return b.gather(x, first, axis=axis, mode="clip"), first, inverse, counts


def _as_rows(b: Any, x: Value, axis: int) -> Value:
    """A matrix with one row for each slice along `axis`."""
    others = [n for n in range(x.ndim) if n != axis]
    transposed = x if axis == 0 else b.transpose(x, axes=[axis, *others])
    return b.reshape(transposed, shape=[x.shape[axis], product(x.shape[n] for n in others)])


def _order(b: Any, numbers: Value) -> Value:
    rows = b.reshape(numbers, shape=[1, numbers.shape[0]])
    return b.reshape(b.order_rows(rows), shape=numbers.shape)


# ---- the algorithms -----------------------------------------------------------------------------


@op
def lexicographic(keys: Value) -> Type:
    """The places of the rows of a matrix in order: by the first column, then by the second, …"""
    require_kind("integer", keys)
    if keys.ndim != 2:
        raise UserError(f"{keys} is no matrix")
    return TensorType("int64", [keys.shape[0]])


@lexicographic.reference
def lexicographic_reference(keys: Array) -> Array:
    if not keys.shape[1]:
        return np.arange(len(keys))
    return np.lexsort(keys.T[::-1]).astype(np.int64)


@lexicographic.kernel
def lexicographic_kernel(keys: Value) -> Function:
    return _merge_sort(keys.dtype)


@op
def group_rows(keys: Value, order: Value) -> tuple[Type, Type, Type, Type]:
    """Equal rows of a matrix, given their order: where the first of each group is, the group of
    each row, how many rows are in each group, and how many groups there are."""
    require_same_shape(order.shape, keys.shape[:1], "the order and the rows")
    rows = TensorType("int64", order.shape)
    return rows, rows, rows, TensorType("int64", [1])


@group_rows.reference
def group_rows_reference(keys: Array, order: Array) -> tuple[Array, Array, Array, Array]:
    first, inverse, counts = (np.zeros(len(order), np.int64) for _ in range(3))
    group = -1
    for at, place in enumerate(order):
        if at == 0 or not np.array_equal(keys[place], keys[order[at - 1]]):
            group += 1
            first[group] = place
        inverse[place] = group
        counts[group] += 1
    return first, inverse, counts, np.array([group + 1], np.int64)


@group_rows.kernel
def group_rows_kernel(keys: Value, order: Value) -> Function:
    del order
    return _grouping(keys.dtype)


@cache
def _merge_sort(dtype: DType) -> Function:
    element: Any = ElementType(dtype)

    @script
    def lexicographic(keys=element["n", "w"], places=i64["n"]):
        size, columns = keys.shape
        spare = alloc(i64["n"])
        for i in range(size):
            places[i] = i
        width = 1
        while width < size:
            begin = 0
            while begin < size:
                middle = min(begin + width, size)
                end = min(middle + width, size)
                left = begin
                right = middle
                for at in range(begin, end):
                    # Of equal ones the left comes first; without columns, all are equal.
                    from_right = left >= middle
                    if left < middle and right < end and columns > 0:
                        a = places[left]
                        b = places[right]
                        column = 0
                        while column < columns - 1 and keys[a, column] == keys[b, column]:
                            column += 1
                        from_right = keys[b, column] < keys[a, column]
                    spare[at] = places[right if from_right else left]
                    if from_right:
                        right += 1
                    else:
                        left += 1
                begin = end
            for i in range(size):
                places[i] = spare[i]
            width = width * 2

    return lexicographic


@cache
def _grouping(dtype: DType) -> Function:
    element: Any = ElementType(dtype)

    @script
    def group_rows(
        keys=element["n", "w"],
        order=i64["n"],
        first=i64["n"],
        inverse=i64["n"],
        counts=i64["n"],
        count=i64[1],
    ):
        size, columns = keys.shape
        groups = 0
        for i in range(size):
            first[i] = 0
            counts[i] = 0
        for at in range(size):
            place = order[at]
            starts = at == 0
            if at > 0:
                column = 0
                before = order[at - 1]
                while column < columns and keys[place, column] == keys[before, column]:
                    column += 1
                starts = column < columns
            if starts:
                first[groups] = place
                groups += 1
            inverse[place] = groups - 1
            counts[groups - 1] += 1
        count[0] = groups

    return group_rows
