"""Elements written to positions given by another tensor; negative indices count from the end.

Updates are made in order, so that the last of several for one position wins. An index that is out
of range stops the program with a message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.tensor.gather import (
    checked_indices,
    from_front,
    index_depth,
    require_within,
)
from tilewright.graph.ops.tensor.loops import Indices, in_place, nest
from tilewright.graph.sizes.agreement import require_equal, require_same_shape
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Buffer, Expr, Function, Stmt, Store, maximum, minimum
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te


class ScatterReduction(NamedTuple):
    """How an element and its update are combined: NumPy's function, and the formula."""

    reference: Any
    formula: Callable[[Expr, Expr], Expr]


def _replaced(_old: Expr, new: Expr) -> Expr:
    return new


REDUCTIONS: dict[str, ScatterReduction] = {
    "none": ScatterReduction(None, _replaced),
    "add": ScatterReduction(np.add, operator.add),
    "mul": ScatterReduction(np.multiply, operator.mul),
    "min": ScatterReduction(np.minimum, minimum),
    "max": ScatterReduction(np.maximum, maximum),
}

# ---- scatter_elements ---------------------------------------------------------------------------


@op
def scatter_elements(
    x: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Type:
    """`x` with each update put at its own place but for `axis`, where the index counts."""
    _check(x, indices, updates, reduction)
    axis = axis_of(axis, x.ndim)
    if not x.ndim == indices.ndim == updates.ndim:
        raise UserError(
            f"x, indices and updates have {x.ndim}, {indices.ndim}, {updates.ndim} dimensions"
        )
    require_same_shape(indices.shape, updates.shape, "indices and updates")
    require_within(indices.shape, x.shape, axis)
    return x.type


@scatter_elements.reference
def scatter_elements_reference(
    x: Array, indices: Array, updates: Array, *, axis: int, reduction: str
) -> Array:
    places = [_along(k, indices.shape) for k in range(x.ndim)]
    places[axis] = checked_indices(indices, x.shape[axis])
    return _scattered(x, tuple(places), updates, reduction)


@scatter_elements.kernel
def scatter_elements_kernel(
    x: Value, indices: Value, updates: Value, *, axis: int, reduction: str
) -> Function:
    axis = axis_of(axis, x.ndim)

    def update(ins: Sequence[Buffer], out: Buffer) -> Stmt:
        def put(i: Indices) -> Stmt:
            place = from_front(ins[1][i], out.shape[axis])
            return _store(out, (*i[:axis], place, *i[axis + 1 :]), ins[2][i], reduction)

        return nest(ins[1].shape, put)

    return in_place("scatter_elements", (x, indices, updates), update)


def _along(axis: int, shape: tuple[int, ...]) -> Array:
    """0, 1, … along one axis."""
    return np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1))


# ---- scatter_nd ---------------------------------------------------------------------------------


@op
def scatter_nd(x: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Type:
    """`x` with updates put at the parts that rows of `indices` name by their leading indices."""
    _check(x, indices, updates, reduction)
    depth = index_depth(indices, x.ndim)
    wanted = [*indices.shape[:-1], *x.shape[depth:]]
    require_same_shape(wanted, updates.shape, "what indices name and updates")
    return x.type


@scatter_nd.reference
def scatter_nd_reference(x: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
    depth = indices.shape[-1]
    places = tuple(checked_indices(indices[..., k], x.shape[k]) for k in range(depth))
    if not depth:
        # Every update is for all of x.
        out = x.copy()
        for row in updates.reshape(-1, *x.shape):
            out = row.copy() if reduction == "none" else REDUCTIONS[reduction].reference(out, row)
        return out
    return _scattered(x, places, updates, reduction)


@scatter_nd.kernel
def scatter_nd_kernel(x: Value, indices: Value, updates: Value, *, reduction: str) -> Function:
    depth, rank = index_depth(indices, x.ndim), indices.ndim - 1

    def update(ins: Sequence[Buffer], out: Buffer) -> Stmt:
        def put(i: Indices) -> Stmt:
            row = i[:rank]
            places = [from_front(ins[1][(*row, te.const(k))], out.shape[k]) for k in range(depth)]
            return _store(out, (*places, *i[rank:]), ins[2][i], reduction)

        return nest(ins[2].shape, put)

    return in_place("scatter_nd", (x, indices, updates), update)


def _store(out: Buffer, at: Indices, new: Expr, reduction: str) -> Store:
    return Store(out, at, REDUCTIONS[reduction].formula(out[at], new))


def _scattered(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    out = x.copy()
    if reduction != "none":
        with np.errstate(all="ignore"):
            REDUCTIONS[reduction].reference.at(out, places, updates)
        return out
    out[places] = updates
    return out


def _check(x: Value, indices: Value, updates: Value, reduction: str) -> None:
    require_kind("integer", indices)
    require_same_dtype(x, updates)
    if reduction not in REDUCTIONS:
        raise UserError(
            f"there is no reduction {reduction!r}", remedy=nearest(reduction, REDUCTIONS)
        )
    if reduction != "none":
        require_kind("number", x)


# ---- tensor_scatter -----------------------------------------------------------------------------


@op
def tensor_scatter(
    cache: Value,
    update: Value,
    write_indices: Value | None = None,
    *,
    axis: int = -2,
    circular: bool = False,
) -> Type:
    """`cache` with `update` written along `axis`, each batch from its own index on.

    A circular cache goes on at its beginning; in another one, what lies beyond the end is left out.
    """
    require_same_dtype(cache, update)
    if update.ndim != cache.ndim or axis_of(axis, cache.ndim) == 0:
        raise UserError(f"{update} cannot be written into {cache} along axis {axis}")
    for n in set(range(cache.ndim)) - {axis_of(axis, cache.ndim)}:
        require_equal(cache.shape[n], update.shape[n], f"dimension {n} of the cache and the update")
    if write_indices is not None:
        require_kind("integer", write_indices)
        require_same_shape(write_indices.shape, cache.shape[:1], "write_indices and batches")
    return cache.type


@tensor_scatter.reference
def tensor_scatter_reference(
    cache: Array, update: Array, write_indices: Array | None, *, axis: int, circular: bool
) -> Array:
    out = cache.copy()
    axis = axis % cache.ndim
    extent = cache.shape[axis]
    for batch in range(cache.shape[0]):
        start = 0 if write_indices is None else int(write_indices[batch])
        for step in range(update.shape[axis]):
            place = (start + step) % extent if circular else start + step
            if 0 <= place < extent:
                row = (batch, *[slice(None)] * (axis - 1))
                out[(*row, place)] = update[(*row, step)]
    return out


@tensor_scatter.compute
def tensor_scatter_compute(
    cache: te.Tensor,
    update: te.Tensor,
    write_indices: te.Tensor | None,
    *,
    axis: int,
    circular: bool,
) -> te.Tensor:
    axis = axis_of(axis, cache.ndim)
    extent, length = cache.shape[axis], update.shape[axis]

    def element(*i: Expr) -> Expr:
        start = te.const(0) if write_indices is None else te.cast(write_indices[i[0]], "int64")
        step = (i[axis] - start) % extent if circular else i[axis] - start
        new = update[(*i[:axis], step, *i[axis + 1 :])]
        return te.if_then_else(te.all_of(step >= 0, step < length), new, cache[i])

    return te.compute(cache.shape, element, name="tensor_scatter")
