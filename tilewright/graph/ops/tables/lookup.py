"""Numbers looked up in tables of keys; NaN is a key like others, and both zeros are one."""

# pyright: reportMissingParameterType=false

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim, product
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.tensor.sort import sort_key_reference
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.ir import DType, Function
from tilewright.support.errors import UserError
from tilewright.tensor import ElementType, i64, parallel, script


@op
def lookup(x: Value, keys: Value, values: Value, default: Value) -> Type:
    """For each element, the value of its key (the last one, of several); or the default."""
    require_kind("computable", x)
    require_same_dtype(x, keys)
    require_same_dtype(values, default)
    if keys.ndim != 1 or values.ndim != 1:
        raise UserError(f"{keys} and {values} are no table")
    require_same_shape(keys.shape, values.shape, "keys and values")
    if default.tensor.size != 1:
        raise UserError(f"{default} must be one element")
    return TensorType(values.dtype, x.shape)


@lookup.reference
def lookup_reference(x: Array, keys: Array, values: Array, default: Array) -> Array:
    table = dict(zip(_keys_of(keys), range(len(keys)), strict=True))
    flat = [table.get(k, -1) for k in _keys_of(x.ravel())]
    found = [values[k] if k >= 0 else default.reshape(()) for k in flat]
    return np.array([*found, default.reshape(())], values.dtype)[:-1].reshape(x.shape)


def _keys_of(x: Array) -> list[int]:
    return sort_key_reference(x, descending=False).tolist()


@lookup.decompose
def lookup_decompose(b: Any, x: Value, keys: Value, values: Value, default: Value) -> Value:
    if known_dim(keys.shape[0]) == 0:
        return b.full(default, shape=x.shape)
    places = _found(b, x, keys)
    is_found = b.greater_equal(places, b.constant(0, "int64"))
    fallback = b.reshape(default, shape=[])
    return b.where(is_found, b.gather(values, places, mode="clip"), fallback)


def _found(b: Any, x: Value, keys: Value) -> Value:
    """The position of each element among the keys; -1 where it is not one."""
    known = b.sort_key(keys)
    order = b.reshape(b.order_rows(b.reshape(known, shape=[1, keys.shape[0]])), shape=keys.shape)
    flat = b.reshape(b.sort_key(x), shape=[product(x.shape)])
    places = b.search(flat, b.gather(known, order, mode="clip"), order)
    return b.reshape(places, shape=x.shape)


@op
def is_in(x: Value, values: Value) -> Type:
    """Whether each element is one of the values."""
    require_kind("computable", x)
    require_same_dtype(x, values)
    if values.ndim != 1:
        raise UserError(f"{values} must have one dimension")
    return TensorType("bool", x.shape)


@is_in.reference
def is_in_reference(x: Array, values: Array) -> Array:
    known = set(_keys_of(values))
    return np.array([k in known for k in _keys_of(x.ravel())], np.bool_).reshape(x.shape)


@is_in.decompose
def is_in_decompose(b: Any, x: Value, values: Value) -> Value:
    return b.greater_equal(_found(b, x, values), b.constant(0, "int64"))


# ---- the algorithm ------------------------------------------------------------------------------


@op
def search(x: Value, keys: Value, places: Value) -> Type:
    """The last place whose key, of keys in order, is the element; -1 where there is none."""
    require_kind("integer", x, keys, places)
    require_same_shape(keys.shape, places.shape, "keys and places")
    require_same_dtype(x, keys)
    return TensorType("int64", x.shape)


@search.reference
def search_reference(x: Array, keys: Array, places: Array) -> Array:
    if not len(keys):
        return np.full(x.shape, -1, np.int64)
    at = np.searchsorted(keys, x, "right") - 1
    return np.where((at >= 0) & (keys[at] == x), places[at], -1).astype(np.int64)


@search.kernel
def search_kernel(x: Value, keys: Value, places: Value) -> Function:
    del keys, places
    return _bisection(x.dtype)


@cache
def _bisection(dtype: DType) -> Function:
    element: Any = ElementType(dtype)

    @script
    def search(x=element["n"], keys=element["k"], places=i64["k"], found=i64["n"]):
        for i in parallel(x.shape[0]):
            wanted = x[i]
            low = 0
            high = keys.shape[0]
            while low < high:
                middle = (low + high) // 2
                if keys[middle] <= wanted:
                    low = middle + 1
                else:
                    high = middle
            at = low - 1
            found[i] = places[at] if at >= 0 and keys[at] == wanted else -1

    return search
