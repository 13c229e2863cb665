"""Pooling over windows of images N×C×spatial; `ceil_mode` keeps windows that stick out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.graph.attributes import Dims, Ints
from tilewright.graph.elementwise import mapped, require_kind
from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.layouts import Blocking, Form, window_layouts
from tilewright.graph.op import op
from tilewright.graph.reduced import accumulator
from tilewright.graph.types import TensorType, Type, known_dim
from tilewright.graph.windows import Window, spatial_rank
from tilewright.ir import DType, Expr, as_expr, maximum, minimum
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- max ----------------------------------------------------------------------------------------


@op
def max_pool(
    x: Value,
    *,
    kernel: Ints,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
    return_indices: bool = False,
    column_major: bool = False,
) -> Type | tuple[Type, ...]:
    """The greatest element in every window; padding never wins.

    `return_indices` gives where it is too (of equals the first in the window), in the whole tensor
    laid out row by row, or with the spatial axes `column_major`.
    """
    require_kind("number", x)
    result = TensorType(x.dtype, _shape(x, kernel, strides, pads, dilations, ceil_mode))
    return (result, result.with_dtype("int64")) if return_indices else result


@max_pool.reference
def max_pool_reference(
    x: Array,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    ceil_mode: bool,
    return_indices: bool,
    column_major: bool,
) -> Any:
    window = Window.of(kernel, strides, pads, dilations).numbers()
    places = _places(window, x.shape, ceil_mode)
    least = -np.inf if DType.of(x.dtype).is_float else DType.of(x.dtype).min_value
    image = window.with_padding(x, least, places)
    at = window.with_padding(_positions(x.shape, column_major), -1, places)
    best = np.full((*x.shape[:2], *places), least, x.dtype)
    where = np.full(best.shape, -1, np.int64)
    under = zip(window.patches(image, places), window.patches(at, places), strict=True)
    for (_, values), (_, indices) in under:
        wins = (values > best) | (np.isnan(values) & ~np.isnan(best))
        takes = (wins | (where < 0)) & (indices >= 0)
        best, where = np.where(takes, values, best), np.where(takes, indices, where)
    return (best, where) if return_indices else best


def _positions(shape: Sequence[int], column_major: bool) -> Array:
    if not column_major:
        return np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    planes = int(np.prod(shape[:2]))
    spatial = shape[2:]
    size = int(np.prod(spatial))
    own = np.arange(size, dtype=np.int64).reshape(spatial, order="F")
    return (np.arange(planes).reshape(*shape[:2], *[1] * len(spatial)) * size + own).astype("i8")


@max_pool.compute
def max_pool_compute(
    x: te.Tensor,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    ceil_mode: bool,
    return_indices: bool,
    column_major: bool,
    out: Any,
) -> Any:
    window = Window.of(kernel, strides, pads, dilations)
    rk = window.axes()
    names = ["n", "c", *window.names]
    stays = window.stays_inside(ceil_mode)
    if return_indices:
        return _with_indices(x, window, rk, out[0].shape, column_major, stays)

    def element(*i: Expr) -> Any:
        value, inside = window.inside(x, i, rk)
        return te.max(value, axis=rk, where=None if stays else inside)

    return te.compute(out.shape, element, name="max_pool", axis_names=names)


@max_pool.layouts
def max_pool_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    if not call.attrs["return_indices"]:
        yield from window_layouts(blocking, call, out)


def _with_indices(
    x: te.Tensor,
    window: Window,
    rk: Sequence[te.ReduceAxis],
    shape: Sequence[Expr],
    column_major: bool,
    stays: bool,
) -> tuple[te.Tensor, te.Tensor]:
    """The greatest elements, and where they are: in the window first, as a small number."""
    names = ["n", "c", *window.names]

    def place(*i: Expr) -> Any:
        value, inside = window.inside(x, i, rk)
        at = te.cast(_flat([k.var for k in rk], [k.extent for k in rk], False), "int32")
        where = None if stays else inside
        return te.argmax(value, axis=rk, index=at, where=where, with_value=True)

    at, best = te.compute(shape, place, name="max_pool", axis_names=names)

    def element(*i: Expr) -> Expr:
        k = _unflat(te.cast(at[i], "int64"), [as_expr(n) for n in window.kernel])
        spatial = zip(window.at(i[2:], k), window.before, strict=True)
        index = [*i[:2], *(place - before for place, before in spatial)]
        return _flat(index, x.shape, column_major)

    return best, te.compute(shape, element, name="max_pool_indices", axis_names=names)


def _unflat(position: Expr, shape: Sequence[Expr]) -> list[Expr]:
    indices: list[Expr] = []
    for extent in reversed(shape):
        indices.append(te.floormod(position, extent))
        position = te.floordiv(position, extent)
    return indices[::-1]


def _flat(indices: Sequence[Expr], shape: Sequence[Expr], column_major: bool) -> Expr:
    order = list(range(len(shape)))
    if column_major:
        order = [0, 1, *reversed(order[2:])]
    position: Expr = indices[order[0]]
    for axis in order[1:]:
        position = position * shape[axis] + indices[axis]
    return position


# ---- average ------------------------------------------------------------------------------------


@op
def avg_pool(
    x: Value,
    *,
    kernel: Ints,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Type:
    """The mean of every window: of its elements inside the image, or with the padding counted."""
    require_kind("float", x)
    return TensorType(x.dtype, _shape(x, kernel, strides, pads, dilations, ceil_mode))


@avg_pool.reference
def avg_pool_reference(
    x: Array,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Array:
    window = Window.of(kernel, strides, pads, dilations).numbers()
    places = _places(window, x.shape, ceil_mode)
    counted = np.ones(x.shape[2:])
    if count_include_pad:
        whole = np.pad(counted, window.cut, constant_values=1.0)
        bare = Window(window.kernel, window.strides, window.dilations, *(((0,) * window.rank,) * 2))
        counts = sum(p for _, p in bare.patches(bare.with_padding(whole, 0, places), places))
    else:
        around = window.with_padding(counted, 0, places)
        counts = sum(p for _, p in window.patches(around, places))
    image = window.with_padding(x.astype(np.float64), 0, places)
    total = sum(p for _, p in window.patches(image, places))
    with np.errstate(all="ignore"):
        return np.asarray(total / counts).astype(x.dtype)


@avg_pool.compute
def avg_pool_compute(
    x: te.Tensor,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    out: TensorType,
) -> te.Tensor:
    window, work = Window.of(kernel, strides, pads, dilations), accumulator(x.dtype)
    total = _summed(x, window, out.shape, work, window.stays_inside(ceil_mode), "avg_pool_sum")

    def element(*i: Expr) -> Expr:
        counts = [
            _count(window, n, i[n + 2], x.shape[n + 2], ceil_mode, count_include_pad)
            for n in range(window.rank)
        ]
        count = as_expr(counts[0])
        for factor in counts[1:]:
            count = count * factor
        return te.cast(total[i] / te.cast(count, work), x.dtype)

    names = ["n", "c", *window.names]
    return te.compute(out.shape, element, name="avg_pool", axis_names=names)


def _count(
    window: Window, n: int, place: Expr, extent: Expr, ceil_mode: bool, include_pad: bool
) -> Any:
    """How many elements of a window count along one axis."""
    kernel, step = as_expr(window.kernel[n]), window.dilations[n]
    if include_pad and (not ceil_mode or window.strides[n] == 1):
        return kernel
    if not window.is_padded and not ceil_mode:
        return kernel
    start = place * window.strides[n] - window.before[n]
    low: Any = -as_expr(window.before[n]) if include_pad else 0
    high = extent + window.after[n] if include_pad else extent
    # The first element at or after the border, counted in steps.
    first = minimum(maximum(te.floordiv(low - start + (step - 1), step), 0), kernel)
    end = minimum(maximum(te.floordiv(high - start + (step - 1), step), 0), kernel)
    return end - first


def _summed(
    x: te.Tensor,
    window: Window,
    shape: Sequence[Expr],
    work: DType,
    stays: bool,
    name: str,
    power: int | None = None,
) -> te.Tensor:
    """The sum over every window of the elements, or of powers of their magnitudes."""
    rk = window.axes()

    def element(*i: Expr) -> Any:
        value, inside = window.inside(x, i, rk)
        value = te.cast(value, work)
        value = value if power is None else _power(te.abs(value), power)
        return te.sum(value, axis=rk, where=None if stays else inside)

    return te.compute(shape, element, name=name, axis_names=["n", "c", *window.names])


def _power(value: Expr, power: int) -> Expr:
    if power in (1, 2):
        return value if power == 1 else value * value
    return te.pow(value, te.const(float(power), value.dtype))


# ---- norms --------------------------------------------------------------------------------------


@op
def lp_pool(
    x: Value,
    *,
    kernel: Ints,
    p: int = 2,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
) -> Type:
    """The `p`-norm of every window."""
    require_kind("float", x)
    if p < 1:
        raise UserError(f"there is no {p}-norm", remedy="use p from 1 up")
    return TensorType(x.dtype, _shape(x, kernel, strides, pads, dilations, ceil_mode))


@lp_pool.reference
def lp_pool_reference(
    x: Array, *, kernel: Ints, p: int, strides: Ints, pads: Ints, dilations: Ints, ceil_mode: bool
) -> Array:
    window = Window.of(kernel, strides, pads, dilations).numbers()
    places = _places(window, x.shape, ceil_mode)
    image = window.with_padding(np.abs(x.astype(np.float64)) ** p, 0, places)
    total: Any = sum(part for _, part in window.patches(image, places))
    return np.asarray(total ** (1 / p)).astype(x.dtype)


@lp_pool.compute
def lp_pool_compute(
    x: te.Tensor,
    *,
    kernel: Ints,
    p: int,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    ceil_mode: bool,
    out: TensorType,
) -> te.Tensor:
    window, work = Window.of(kernel, strides, pads, dilations), accumulator(x.dtype)
    stays = window.stays_inside(ceil_mode)
    total = _summed(x, window, out.shape, work, stays, "lp_pool_sum", p)
    return mapped(lambda e: te.cast(root(e, p), x.dtype), total, name="lp_pool")


def root(value: Expr, p: int) -> Expr:
    """The p-th root."""
    if p == 1:
        return value
    return te.sqrt(value) if p == 2 else te.pow(value, te.const(1.0 / p, value.dtype))


# ---- what they share ----------------------------------------------------------------------------


def _shape(
    x: Value, kernel: Ints, strides: Ints, pads: Dims, dilations: Ints, ceil_mode: bool
) -> list[Expr]:
    rank = spatial_rank(x.ndim, x.name)
    if len(kernel) != rank:
        raise UserError(f"the kernel {list(kernel)} does not fit {rank} spatial axes")
    window = Window.of(kernel, strides, pads, dilations)
    return [*x.shape[:2], *window.places(x.shape[2:], ceil_mode)]


def _places(window: Window, shape: Sequence[int], ceil_mode: bool) -> list[int]:
    extents = [te.const(e) for e in shape[2:]]
    return [int(known_dim(p) or 0) for p in window.places(extents, ceil_mode)]


for _op in (avg_pool, lp_pool):
    _op.layouts(window_layouts)


# ---- over all of an image -----------------------------------------------------------------------


def _spatial(x: Value) -> Ints:
    spatial_rank(x.ndim, x.name)
    return tuple(range(2, x.ndim))


def _global_type(x: Value) -> Type:
    require_kind("float", x)
    return TensorType(x.dtype, [*x.shape[:2], *[1] * len(_spatial(x))])


@op
def global_avg_pool(x: Value) -> Type:
    """The mean over all spatial axes, which become 1."""
    return _global_type(x)


@global_avg_pool.reference
def global_avg_pool_reference(x: Array) -> Array:
    return x.astype(np.float64).mean(axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)


@global_avg_pool.decompose
def global_avg_pool_decompose(b: Any, x: Value) -> Value:
    return b.mean(x, axes=_spatial(x), keepdims=True)


@op
def global_max_pool(x: Value) -> Type:
    """The greatest element over all spatial axes, which become 1."""
    return _global_type(x)


@global_max_pool.reference
def global_max_pool_reference(x: Array) -> Array:
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


@global_max_pool.decompose
def global_max_pool_decompose(b: Any, x: Value) -> Value:
    return b.max(x, axes=_spatial(x), keepdims=True)


@op
def global_lp_pool(x: Value, *, p: int = 2) -> Type:
    """The `p`-norm over all spatial axes, which become 1."""
    return _global_type(x)


@global_lp_pool.reference
def global_lp_pool_reference(x: Array, *, p: int) -> Array:
    powers = np.abs(x.astype(np.float64)) ** p
    return (powers.sum(axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)).astype(x.dtype)


@global_lp_pool.decompose
def global_lp_pool_decompose(b: Any, x: Value, *, p: int) -> Value:
    if p in (1, 2):
        return b.emit("l1" if p == 1 else "l2", x, axes=_spatial(x), keepdims=True)
    total = b.sum(b.pow(b.abs(x), float(p)), axes=_spatial(x), keepdims=True)
    return b.pow(total, 1.0 / p)
