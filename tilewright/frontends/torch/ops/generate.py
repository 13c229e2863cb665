"""Tensors that are not computed from elements."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.common.padding import simplified
from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value
from tilewright.ir import Expr, as_expr, maximum


@converts("full", "full_like", "new_full")
def full(n: Node) -> Value:
    return n.full(n["fill_value"], n.shape, n.dtype)


@converts("scalar_tensor")
def scalar_tensor(n: Node) -> Value:
    return n.number(n["s"], n.dtype)


@converts("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
@converts("empty_strided", "new_empty_strided", "empty_permuted")
def zeros(n: Node) -> Value:
    """Uninitialized tensors may have any elements: zeros here."""
    return n.full(0, n.shape, n.dtype)


@converts("ones", "ones_like", "new_ones")
def ones(n: Node) -> Value:
    return n.full(1, n.shape, n.dtype)


@converts("fill")
def fill(n: Node) -> Value:
    x = n.tensor("self")
    return n.builder.full(n.tensor("value", x.dtype), shape=list(x.shape))


@converts("copy")
def copy(n: Node) -> Value:
    x = n.tensor("self")
    return n.expanded(n.tensor("src", x.dtype), x.shape)


@converts("arange")
def arange(n: Node) -> Value:
    start, step = n.get("start", 0), n.get("step", 1)
    size, dtype = n.shape[0], n.dtype
    if dtype.is_integer:
        whole = isinstance(start, int | Expr) and isinstance(step, int | Expr)
        if whole:
            return n.builder.ramp(n.number(start, dtype), n.number(step, dtype), size=size)
    ramp = n.builder.ramp(n.number(start, "float64"), n.number(step, "float64"), size=size)
    return n.cast(ramp, dtype)


@converts("linspace")
def linspace(n: Node) -> Value:
    b, size = n.builder, n.dim("steps")
    start, end = (n.number(n[k], "float64") for k in ("start", "end"))
    one = n.constant(1, "int64")
    ramp = b.ramp(n.constant(0, "int64"), one, size=size)
    last = n.number(simplified(maximum(as_expr(size) - 1, 1)), "int64")
    back = b.sub(n.number(simplified(as_expr(size) - 1), "int64"), ramp)
    step = b.div(b.sub(end, start), n.cast(last, "float64"))
    # From both ends, so that the last element is the end itself.
    forwards = b.add(start, b.mul(n.cast(ramp, "float64"), step))
    backwards = b.sub(end, b.mul(n.cast(back, "float64"), step))
    values = b.where(b.less(ramp, back), forwards, backwards)
    return n.cast(n.expanded(values, [size]), n.dtype)


@converts("eye")
def eye(n: Node) -> Value:
    rows, columns = n.shape
    return n.builder.eye(rows=rows, columns=columns, dtype=n.dtype)


@converts("tril", "triu")
def triangle(n: Node) -> Value:
    x, upper = n.tensor("self"), n.op.startswith("triu")
    wide = n.cast(x, "uint8") if x.dtype.is_bool else x
    made = n.builder.trilu(wide, k=n.dim_of(n.get("diagonal", 0)), upper=upper)
    return n.cast(made, x.dtype)


@converts("tril_indices", "triu_indices")
def triangle_indices(n: Node) -> Value:
    rows, columns, offset = int(n["row"]), int(n["col"]), int(n.get("offset", 0))
    found = (np.tril_indices if n.op.startswith("tril") else np.triu_indices)(rows, offset, columns)
    return n.builder.constant(np.stack(found).astype(n.dtype.numpy))
