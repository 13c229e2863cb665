"""Sorting along an axis: stable, NaN counts as the greatest of all numbers.

Integers in the same order as the elements are sorted (`sort_key`), so that one algorithm serves all
element types and both directions. It computes positions, by which the elements are gathered
afterwards.
"""

# pyright: reportMissingParameterType=false, reportCallIssue=false

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim, product
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.sizes.agreement import require_at_most
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import DType, Expr, Function
from tilewright.support.errors import UserError
from tilewright.tensor import ElementType, alloc, i64, parallel, script, te

#: Runs of this many elements are sorted by insertion before they are merged.
_RUN = 16
#: Up to this many elements are selected one by one; more are sorted.
_FEW = 64

# ---- sort ---------------------------------------------------------------------------------------


@op
def sort(x: Value, *, axis: int = -1, descending: bool = False) -> tuple[Type, Type]:
    """The elements in order along `axis`, and where they were; equal ones keep their order."""
    require_kind("computable", x)
    axis_of(axis, x.ndim)
    return x.type, TensorType("int64", x.shape)


@sort.reference
def sort_reference(x: Array, *, axis: int, descending: bool) -> tuple[Array, Array]:
    order = _order(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


@sort.decompose
def sort_decompose(b: Any, x: Value, *, axis: int, descending: bool) -> tuple[Value, Value]:
    rows = _as_rows(b, x, axis)
    places = b.order_rows(b.sort_key(rows, descending=descending))
    return _picked(b, x, rows, places, axis)


def _order(x: Array, axis: int, descending: bool) -> Array:
    """By NumPy: a stable descending sort is a stable ascending one from the back."""
    if x.dtype.kind not in "iufb":
        x = x.astype(np.float32)
    if not descending:
        return np.argsort(x, axis, kind="stable").astype(np.int64)
    back = np.argsort(np.flip(x, axis), axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(back, axis)).astype(np.int64)


def _as_rows(b: Any, x: Value, axis: int) -> Value:
    """`x` as a matrix whose rows run along `axis`."""
    axis = axis_of(axis, x.ndim)
    others = [n for n in range(x.ndim) if n != axis]
    transposed = x if axis == x.ndim - 1 else b.transpose(x, axes=[*others, axis])
    return b.reshape(transposed, shape=[product(x.shape[n] for n in others), x.shape[axis]])


def _picked(b: Any, x: Value, rows: Value, places: Value, axis: int) -> tuple[Value, Value]:
    values = b.gather_elements(rows, places, axis=1, mode="clip")
    return _from_rows(b, values, x, axis), _from_rows(b, places, x, axis)


def _from_rows(b: Any, rows: Value, x: Value, axis: int) -> Value:
    """Rows moved back to `axis`; they may have become shorter."""
    axis = axis_of(axis, x.ndim)
    others = [n for n in range(x.ndim) if n != axis]
    shaped = b.reshape(rows, shape=[*(x.shape[n] for n in others), rows.shape[1]])
    if axis == x.ndim - 1:
        return shaped
    order = [*others, axis]
    return b.transpose(shaped, axes=[order.index(n) for n in range(x.ndim)])


# ---- top_k --------------------------------------------------------------------------------------


@op
def top_k(x: Value, *, k: Dim, axis: int = -1, largest: bool = True) -> tuple[Type, Type]:
    """The `k` greatest (or least) elements along `axis` in order, and where they were."""
    require_kind("computable", x)
    axis = axis_of(axis, x.ndim)
    extent, count = known_dim(x.shape[axis]), known_dim(k)
    if count is not None and (count < 0 or (extent is not None and count > extent)):
        raise UserError(f"{count} elements cannot be taken of {extent}")
    require_at_most(k, x.shape[axis], "elements that are taken")
    shape = [*x.shape[:axis], k, *x.shape[axis + 1 :]]
    return x.tensor.with_shape(shape), TensorType("int64", shape)


@top_k.reference
def top_k_reference(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    order = np.moveaxis(np.moveaxis(_order(x, axis, largest), axis, 0)[:k], 0, axis)
    return np.take_along_axis(x, order, axis), order


@top_k.decompose
def top_k_decompose(b: Any, x: Value, *, k: Dim, axis: int, largest: bool) -> tuple[Value, Value]:
    rows, count = _as_rows(b, x, axis), known_dim(k)
    keys = b.sort_key(rows, descending=largest)
    if count is not None and 0 < count <= _FEW:
        places = b.first_of_rows(keys, k=count)
    else:
        places = b.slice(b.order_rows(keys), starts=[0], ends=[k], axes=[1])
    return _picked(b, x, rows, places, axis)


# ---- keys ---------------------------------------------------------------------------------------


@op
def sort_key(x: Value, *, descending: bool = False) -> Type:
    """Whole numbers in the order of the elements; NaN is above all, both zeros are equal."""
    return TensorType(_key_type(x.dtype), x.shape)


@sort_key.reference
def sort_key_reference(x: Array, *, descending: bool) -> Array:
    dtype = DType.of(x.dtype)
    if not dtype.is_float and x.dtype != np.uint64:
        keys = x.astype(_key_type(dtype).numpy)
    elif x.dtype == np.uint64:
        keys = (x ^ np.uint64(1 << 63)).view(np.int64)
    else:
        wide = x if x.dtype == np.float64 else x.astype(np.float32)
        bits = wide.view(np.int64 if wide.itemsize == 8 else np.int32)
        greatest = np.iinfo(bits.dtype).max
        keys = np.where(bits < 0, bits ^ greatest, bits)
        keys = np.where(wide == 0, 0, np.where(np.isnan(wide), greatest, keys)).astype(bits.dtype)
    return ~keys if descending else keys


@sort_key.compute
def sort_key_compute(x: te.Tensor, *, descending: bool) -> te.Tensor:
    def key(e: Expr) -> Expr:
        found = _key(e)
        return ~found if descending else found

    return mapped(key, x, name="sort_key")


def _key_type(dtype: DType) -> DType:
    wide = dtype.bits == 64 or (dtype.bits == 32 and dtype.kind == "uint")
    return DType.of("int64" if wide else "int32")


def _key(e: Expr) -> Expr:
    to = _key_type(e.dtype)
    if e.dtype.name == "uint64":
        return te.reinterpret(e, to) ^ te.const(to.min_value, to)
    if not e.dtype.is_float:
        return te.cast(e, to)
    wide = e if e.dtype.bits == 64 else te.cast(e, "float32")
    bits, greatest = te.reinterpret(wide, to), te.const(to.max_value, to)
    ordered = te.select(bits < 0, bits ^ greatest, bits)
    numbered = te.select(te.isnan(wide), greatest, ordered)
    return te.select(wide == te.const(0, wide.dtype), te.const(0, to), numbered)


# ---- the algorithms -----------------------------------------------------------------------------


@op
def order_rows(keys: Value) -> Type:
    """The places of the elements of each row of a matrix, least first."""
    require_kind("integer", keys)
    return TensorType("int64", keys.shape)


@order_rows.reference
def order_rows_reference(keys: Array) -> Array:
    return np.argsort(keys, 1, kind="stable").astype(np.int64)


@order_rows.kernel
def order_rows_kernel(keys: Value) -> Function:
    return merge_sort(keys.dtype)


@op
def first_of_rows(keys: Value, *, k: int) -> Type:
    """The places of the `k` least elements of each row of a matrix, in order."""
    require_kind("integer", keys)
    return TensorType("int64", [keys.shape[0], k])


@first_of_rows.reference
def first_of_rows_reference(keys: Array, *, k: int) -> Array:
    return order_rows_reference(keys)[:, :k]


@first_of_rows.kernel
def first_of_rows_kernel(keys: Value, *, k: int) -> Function:
    return selection(keys.dtype, k)


@cache
def merge_sort(dtype: DType) -> Function:
    """Runs sorted by insertion, then merged back and forth between two copies."""
    element: Any = ElementType(dtype)

    @script
    def merge(
        keys=element["m", "n"],
        places=i64["m", "n"],
        merged=element["m", "n"],
        merged_places=i64["m", "n"],
        row=i64,
        width=i64,
    ):
        size = keys.shape[1]
        begin = 0
        while begin < size:
            middle = min(begin + width, size)
            end = min(middle + width, size)
            left = begin
            right = middle
            for at in range(begin, end):
                # Stable: of equal elements, that of the left run comes first.
                from_right = right < end
                if left < middle and right < end:
                    from_right = keys[row, right] < keys[row, left]
                chosen = right if from_right else left
                merged[row, at] = keys[row, chosen]
                merged_places[row, at] = places[row, chosen]
                if from_right:
                    right += 1
                else:
                    left += 1
            begin = end

    @script
    def order_rows(x=element["m", "n"], places=i64["m", "n"]):
        size = x.shape[1]
        keys = alloc(element["m", "n"])
        spare = alloc(element["m", "n"])
        spare_places = alloc(i64["m", "n"])
        for row in parallel(x.shape[0]):
            for i in range(size):
                key = x[row, i]
                j = i
                while j % _RUN > 0 and key < keys[row, j - 1]:
                    keys[row, j] = keys[row, j - 1]
                    places[row, j] = places[row, j - 1]
                    j -= 1
                keys[row, j] = key
                places[row, j] = i
            width = _RUN
            while width < size:
                merge(keys, places, spare, spare_places, row, width)
                merge(spare, spare_places, keys, places, row, width * 2)
                width = width * 4

    return order_rows


@cache
def selection(dtype: DType, k: int) -> Function:
    """The `k` least so far are kept in order; most elements are greater than the last of them."""
    element: Any = ElementType(dtype)

    @script
    def first_of_rows(x=element["m", "n"], places=i64["m", k]):
        keys = alloc(element["m", k])
        for row in parallel(x.shape[0]):
            assert x.shape[1] >= k, f"{k} elements cannot be taken of {x.shape[1]}"
            for i in range(x.shape[1]):
                key = x[row, i]
                j = min(i, k - 1)
                if i >= k and keys[row, k - 1] <= key:
                    continue
                while j > 0 and key < keys[row, j - 1]:
                    keys[row, j] = keys[row, j - 1]
                    places[row, j] = places[row, j - 1]
                    j -= 1
                keys[row, j] = key
                places[row, j] = i

    return first_of_rows
