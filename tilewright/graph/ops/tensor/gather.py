"""Elements at positions given by another tensor; negative indices count from the end.

An index that is out of range stops the program with a message, or is clamped (mode "clip"):
nothing outside is ever read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_at_most, require_same_shape
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Const, Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- gather -------------------------------------------------------------------------------------


@op
def gather(x: Value, indices: Value, *, axis: int = 0, mode: str = "check") -> Type:
    """The slices of `x` along `axis` that `indices` names; their shape stands in its place."""
    _require_indices(indices, mode)
    axis = axis_of(axis, x.ndim)
    return x.tensor.with_shape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@gather.reference
def gather_reference(x: Array, indices: Array, *, axis: int, mode: str) -> Array:
    return np.take(x, _places(indices, x.shape[axis], mode), axis)


@gather.decompose
def gather_decompose(b: Any, x: Value, indices: Value, *, axis: int, mode: str) -> Value:
    places, extent = known_numbers(indices), known_dim(x.shape[axis])
    if places is None or extent is None or not _all_inside(places, extent):
        return b.take(x, indices, axis=axis, mode=mode)
    # Indices that are known to be inside need no check at run time.
    return b.take(x, np.where(places < 0, places + extent, places), axis=axis, mode="hold")


@gather.symbolic
def gather_symbolic(x: Value, indices: Value, *, axis: int, mode: str) -> Array | None:
    del mode
    places = known_numbers(indices)
    if x.known is None or places is None or not places.size:
        return None
    if not _all_inside(places, x.known.shape[axis]):
        return None
    # An array even for a single element, as expressions are not arrays.
    found = np.empty(np.take(np.empty(x.known.shape), places, axis).shape, object)
    found[...] = np.take(x.known, places, axis)
    return found


def _all_inside(places: Array, extent: int) -> bool:
    return bool(((places >= -extent) & (places < extent)).all())


def known_numbers(value: Value) -> Array | None:
    """The elements of an integer tensor that are all known as numbers."""
    if value.constant is not None:
        return np.asarray(value.constant, np.int64)
    if value.known is None or not all(isinstance(e, Const) for e in value.known.ravel()):
        return None
    return np.array([int(e.value) for e in value.known.ravel()], np.int64).reshape(
        value.known.shape
    )


def checked_indices(indices: Array, extent: int) -> Array:
    """The indices, counted from the front, after a check that all of them are in range."""
    wide = indices.astype(np.int64)
    outside = (wide < -extent) | (wide >= extent)
    if outside.any():
        first = int(wide[outside].flat[0])
        raise UserError(f"index {first} is out of range", reason=f"the extent is {extent}")
    return np.where(wide < 0, wide + extent, wide)


def from_front(index: Expr, extent: Expr, mode: str = "check") -> Expr:
    """An index read from memory, counted from the front; clamped, unless the mode is "check"."""
    wide = te.cast(index, "int64")
    if index.dtype.kind != "uint" and mode != "hold":
        wide = te.select(wide < 0, wide + extent, wide)
    return wide if mode == "check" else te.maximum(te.minimum(wide, extent - 1), 0)


def _places(indices: Array, extent: int, mode: str) -> Array:
    if mode == "check":
        return checked_indices(indices, extent)
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, extent - 1)


def _require_indices(indices: Value, mode: str, modes: Sequence[str] = ("check", "clip")) -> None:
    require_kind("integer", indices)
    if mode not in modes:
        raise UserError(f"there is no mode {mode!r}", remedy=f"use {' or '.join(modes)}")


@op
def take(x: Value, indices: Value, *, axis: int = 0, mode: str = "check") -> Type:
    """`gather`; in the mode "hold", indices are inside and count from the front already."""
    _require_indices(indices, mode, ("check", "clip", "hold"))
    axis = axis_of(axis, x.ndim)
    return x.tensor.with_shape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@take.reference
def take_reference(x: Array, indices: Array, *, axis: int, mode: str) -> Array:
    return np.take(x, _places(indices, x.shape[axis], mode), axis)


@take.compute
def take_compute(x: te.Tensor, indices: te.Tensor, *, axis: int, mode: str) -> te.Tensor:
    axis, rank = axis_of(axis, x.ndim), indices.ndim

    def element(*i: Expr) -> Expr:
        place = from_front(indices[i[axis : axis + rank]], x.shape[axis], mode)
        return x[(*i[:axis], place, *i[axis + rank :])]

    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return te.compute(shape, element, name="take")


# ---- gather_elements ----------------------------------------------------------------------------


@op
def gather_elements(x: Value, indices: Value, *, axis: int = 0, mode: str = "check") -> Type:
    """For each place of `indices`, the element of `x` there; along `axis`, where the index says."""
    _require_indices(indices, mode)
    axis = axis_of(axis, x.ndim)
    if indices.ndim != x.ndim:
        raise UserError(f"indices has {indices.ndim} dimensions, x {x.ndim}")
    require_within(indices.shape, x.shape, axis)
    return x.tensor.with_shape(indices.shape)


@gather_elements.reference
def gather_elements_reference(x: Array, indices: Array, *, axis: int, mode: str) -> Array:
    places = _places(indices, x.shape[axis], mode)
    part = tuple(
        slice(None) if n == axis % x.ndim else slice(extent)
        for n, extent in enumerate(indices.shape)
    )
    return np.take_along_axis(x[part], places, axis)


@gather_elements.compute
def gather_elements_compute(x: te.Tensor, indices: te.Tensor, *, axis: int, mode: str) -> te.Tensor:
    axis = axis_of(axis, x.ndim)

    def element(*i: Expr) -> Expr:
        place = from_front(indices[i], x.shape[axis], mode)
        return x[(*i[:axis], place, *i[axis + 1 :])]

    return te.compute(indices.shape, element, name="gather_elements")


def require_within(inner: Sequence[Expr], outer: Sequence[Expr], axis: int) -> None:
    """Require that indices along `axis` fit inside x along the other axes."""
    if any(known_dim(d) == 0 for d in inner):
        return
    # Empty indices fit, whatever their extents along other axes.
    none = [d == const(0) for d in inner if known_dim(d) is None]
    for n, (a, b) in enumerate(zip(inner, outer, strict=True)):
        if n != axis:
            require_at_most(a, b, f"dimension {n} of indices and of x", unless=none)


# ---- gather_nd ----------------------------------------------------------------------------------


@op
def gather_nd(x: Value, indices: Value, *, batch_dims: int = 0) -> Type:
    """The parts of `x` that rows of `indices` name by their leading indices.

    The first `batch_dims` dimensions are common to both: each batch has its own indices.
    """
    require_kind("integer", indices)
    depth = index_depth(indices, x.ndim - batch_dims)
    if not 0 <= batch_dims < max(1, min(x.ndim, indices.ndim)):
        raise UserError(f"{batch_dims} dimensions cannot be common to {x} and {indices}")
    shared = slice(batch_dims)
    require_same_shape(x.shape[shared], indices.shape[shared], "the batches of x and indices")
    return x.tensor.with_shape([*indices.shape[:-1], *x.shape[batch_dims + depth :]])


@gather_nd.reference
def gather_nd_reference(x: Array, indices: Array, *, batch_dims: int) -> Array:
    depth = indices.shape[-1]
    rows = indices.reshape(math.prod(indices.shape[:-1]), depth)
    out = np.empty((len(rows), *x.shape[batch_dims + depth :]), x.dtype)
    places = [checked_indices(rows[:, k], x.shape[batch_dims + k]) for k in range(depth)]
    batches = list(np.ndindex(indices.shape[:-1]))
    for row, batch in enumerate(batches):
        at = (*batch[:batch_dims], *(int(p[row]) for p in places))
        out[row] = x[at]
    return out.reshape((*indices.shape[:-1], *x.shape[batch_dims + depth :]))


@gather_nd.compute
def gather_nd_compute(
    x: te.Tensor, indices: te.Tensor, *, batch_dims: int, out: TensorType
) -> te.Tensor:
    depth, rank = known_dim(indices.shape[-1]) or 0, indices.ndim - 1

    def element(*i: Expr) -> Expr:
        row = i[:rank]
        places = [from_front(indices[(*row, k)], x.shape[batch_dims + k]) for k in range(depth)]
        return x[(*i[:batch_dims], *places, *i[rank:])]

    return te.compute(out.shape, element, name="gather_nd")


def index_depth(indices: Value, most: int) -> int:
    """How many leading dimensions a row of `indices` fixes."""
    depth = known_dim(indices.shape[-1]) if indices.ndim else None
    if depth is None:
        raise UserError(
            f"indices is {indices.type}", reason="its last dimension must be a known number"
        )
    if depth > most:
        raise UserError(f"rows of {depth} indices cannot index {most} dimensions")
    return depth
