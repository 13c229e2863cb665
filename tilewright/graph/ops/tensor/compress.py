"""Elements selected by a condition: their number is known only at run time."""

# pyright: reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, fresh_dim, product
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_at_most
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Expr, Function
from tilewright.support.errors import UserError
from tilewright.tensor import boolean, i64, script, te


@op
def compress(x: Value, condition: Value, *, axis: int | None = None) -> Type:
    """The slices of `x` along `axis` for which the condition holds; of all elements in a row
    without an axis. The condition may be shorter."""
    require_kind("bool", condition)
    if condition.ndim != 1:
        raise UserError(f"{condition} must have one dimension")
    extent = product(x.shape) if axis is None else x.shape[axis_of(axis, x.ndim)]
    require_at_most(condition.shape[0], extent, "the condition and what it chooses from")
    if axis is None:
        return x.tensor.with_shape([fresh_dim("count")])
    axis = axis_of(axis, x.ndim)
    return x.tensor.with_shape([*x.shape[:axis], fresh_dim("count"), *x.shape[axis + 1 :]])


@compress.reference
def compress_reference(x: Array, condition: Array, *, axis: int | None) -> Array:
    return np.compress(condition, x, axis)


@compress.decompose
def compress_decompose(b: Any, x: Value, condition: Value, *, axis: int | None) -> Value:
    if axis is None:
        x, axis = b.reshape(x, shape=[product(x.shape)]), 0
    return b.gather(x, _chosen(b, condition), axis=axis)


@op
def non_zero(x: Value) -> Type:
    """The indices of all elements that are not zero, a column for each, in order."""
    require_kind("computable", x)
    return TensorType("int64", [x.ndim, fresh_dim("count")])


@non_zero.reference
def non_zero_reference(x: Array) -> Array:
    if not x.ndim:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@non_zero.decompose
def non_zero_decompose(b: Any, x: Value) -> Value:
    flags = b.cast(b.reshape(x, shape=[product(x.shape)]), dtype="bool")
    return b.unravel(_chosen(b, flags), shape=x.shape)


def _chosen(b: Any, flags: Value) -> Value:
    """The positions where a vector of flags is set, as many as there are."""
    places, count = b.true_places(flags)
    (number,) = b.read(count, "count", natural=True)
    return b.slice(places, starts=[0], ends=[number], axes=[0])


# ---- what they are made of ----------------------------------------------------------------------


@op
def true_places(flags: Value) -> tuple[Type, Type]:
    """The places where a row of flags is set, in order, and how many they are; then zeros."""
    require_kind("bool", flags)
    return TensorType("int64", flags.shape), TensorType("int64", [1])


@true_places.reference
def true_places_reference(flags: Array) -> tuple[Array, Array]:
    places = np.zeros(flags.shape, np.int64)
    found = np.flatnonzero(flags)
    places[: len(found)] = found
    return places, np.array([len(found)], np.int64)


@true_places.kernel
def true_places_kernel(flags: Value) -> Function:
    del flags

    @script
    def true_places(flags=boolean["n"], places=i64["n"], count=i64[1]):
        found = 0
        for i in range(flags.shape[0]):
            if flags[i]:
                places[found] = i
                found += 1
        count[0] = found
        for i in range(found, flags.shape[0]):
            places[i] = 0

    return true_places


@op
def unravel(places: Value, *, shape: Dims) -> Type:
    """Places in a tensor of `shape`, counted row by row, as one index for each dimension."""
    require_kind("integer", places)
    return TensorType("int64", [len(shape), *places.shape])


@unravel.reference
def unravel_reference(places: Array, *, shape: Ints) -> Array:
    rest = places.astype(np.int64)
    found: list[Array] = []
    for extent in reversed(shape):
        found.append(rest % max(extent, 1))
        rest = rest // max(extent, 1)
    return np.array(found[::-1], np.int64).reshape(len(shape), *places.shape)


@unravel.compute
def unravel_compute(places: te.Tensor, *, shape: Dims, out: TensorType) -> te.Tensor:
    def element(n: Expr, *i: Expr) -> Expr:
        return _index(te.cast(places[i], "int64"), shape, n)

    names = [f"i{n}" for n in range(out.ndim)]
    return te.compute(out.shape, element, name="unravel", axis_names=names)


def _index(place: Expr, shape: Sequence[Any], n: Expr) -> Expr:
    result: Expr = te.const(0)
    for k, extent in enumerate(shape):
        index = place // product(shape[k + 1 :]) % extent
        result = te.select(n == k, index, result)
    return result
