"""Distinct elements, most frequent ones, and derivatives of pooling."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.elementwise import numeric, truth
from tilewright.frontends.torch.ops.reduction import keeps
from tilewright.frontends.torch.ops.shapes import reshaped
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value, product


@converts("_unique2", "_unique")
def unique(n: Node) -> list[Value]:
    x, b = n.tensor("self"), n.builder
    flat = b.reshape(numeric(n, x), shape=[-1])
    values, _, inverse, counts = b.unique(flat, ordered=True)
    results = [n.cast(values, x.dtype), reshaped(n, inverse, x.shape), counts]
    return results[: len(n.results)]


@converts("unique_dim")
def unique_dim(n: Node) -> list[Value]:
    x, b = n.tensor("self"), n.builder
    values, _, inverse, counts = b.unique(numeric(n, x), axis=n.axis("dim"), ordered=True)
    return [n.cast(values, x.dtype), inverse, counts]


@converts("unique_consecutive")
def unique_consecutive(n: Node) -> list[Value]:
    """Of adjacent equal elements, the first."""
    x, b = n.tensor("self"), n.builder
    flat = b.reshape(x, shape=[-1])
    size = flat.shape[0]
    before = b.slice(flat, starts=[0], ends=[size - 1], axes=[0])
    behind = b.slice(flat, starts=[1], ends=[size], axes=[0])
    new = b.concat(n.full(True, [1], "bool"), b.not_equal(before, behind), axis=0)
    one = n.constant(1, "int64")
    inverse = b.sub(b.cumsum(n.cast(new, "int64"), axis=0), one)
    values = b.compress(flat, new, axis=0)
    places = b.compress(b.ramp(n.constant(0, "int64"), one, size=size), new, axis=0)
    ends = b.concat(places, reshaped(n, n.number(size, "int64"), [1]), axis=0)
    counts = b.sub(b.slice(ends, starts=[1], ends=[(1 << 63) - 1], axes=[0]), places)
    return [values, reshaped(n, inverse, x.shape), counts]


@converts("nonzero_static")
def nonzero_static(n: Node) -> Value:
    x, b, size = truth(n, n.tensor("self")), n.builder, n.dim("size")
    if not x.ndim:
        return n.full(0, [size, 0], "int64")
    found = b.transpose(b.non_zero(x), axes=[1, 0])
    rest = n.full(n.get("fill_value", -1), [size, x.ndim], "int64")
    return b.slice(b.concat(found, rest, axis=0), starts=[0], ends=[size], axes=[0])


@converts("mode")
def mode(n: Node) -> list[Value]:
    """The least of the most frequent elements, and its last position."""
    x, b = n.tensor("self"), n.builder
    if not x.ndim:
        return [x, n.full(0, [], "int64")]
    axis = n.axis("dim", default=-1)
    order = [k for k in range(x.ndim) if k != axis]
    rows = b.transpose(numeric(n, x), axes=[*order, axis])
    last = x.ndim - 1
    ordered = b.sort(rows, axis=last)[0]
    same = b.equal(b.unsqueeze(ordered, axes=[x.ndim]), b.unsqueeze(ordered, axes=[last]))
    counts = b.sum(n.cast(same, "int64"), axes=[x.ndim])
    best = b.argmax(counts, axis=last, keepdims=True)
    value = b.gather_elements(ordered, best, axis=last)
    here = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=x.shape[axis])
    found = b.where(b.equal(rows, value), here, n.constant(-1, "int64"))
    place = b.max(found, axes=[last])
    results: list[Any] = [n.cast(b.squeeze(value, axes=[last]), x.dtype), place]
    return [b.unsqueeze(v, axes=[axis]) for v in results] if keeps(n) else results


@converts("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(n: Node) -> Value:
    b, x = n.builder, n.tensor("self")
    rank = 2 if "2d" in n.op else 3
    lead = x.shape[:-rank]
    empty = n.full(0, [*lead, product(x.shape[-rank:])], x.dtype)
    places, given = (b.reshape(n.tensor(k), shape=[*lead, -1]) for k in ("indices", "grad_output"))
    made = b.scatter_elements(empty, places, given, axis=len(lead), reduction="add")
    return reshaped(n, made, x.shape)
