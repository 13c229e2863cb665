"""Means and norms over windows of images N×C×spatial; `ceil_mode` keeps windows that overhang."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.layouts.images import window_layouts
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.ops.neural.pooled_window import PooledWindow
from tilewright.graph.ops.neural.windows import Window, spatial_rank
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.ir import DType, Expr, as_expr, maximum, minimum
from tilewright.support.errors import UserError
from tilewright.tensor import te


def pooled_shape(
    x: Value, kernel: Ints, strides: Ints, pads: Dims, dilations: Ints, ceil_mode: bool
) -> list[Expr]:
    """The shape of a pooled image."""
    rank = spatial_rank(x.ndim, x.name)
    if len(kernel) != rank:
        raise UserError(f"the kernel {list(kernel)} does not fit {rank} spatial axes")
    window = Window.of(kernel, strides, pads, dilations)
    return [*x.shape[:2], *window.places(x.shape[2:], ceil_mode)]


def pooled_places(window: Window, shape: Sequence[int], ceil_mode: bool) -> list[int]:
    """The number of positions of the window along each spatial axis of an image of this shape."""
    extents = [te.const(e) for e in shape[2:]]
    return [int(known_dim(p) or 0) for p in window.places(extents, ceil_mode)]


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
    return TensorType(x.dtype, pooled_shape(x, kernel, strides, pads, dilations, ceil_mode))


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
    places = pooled_places(window, x.shape, ceil_mode)
    total = _totals(x.astype(np.float64), window, places)
    factors = [
        _counts(window, n, x.shape[n + 2], count_include_pad, e) for n, e in enumerate(places)
    ]
    counts = reduce(np.multiply, np.ix_(*factors))
    with np.errstate(all="ignore"):
        return np.asarray(total / counts).astype(x.dtype)


def _counts(window: Window, n: int, extent: int, include_pad: bool, places: int) -> Array:
    """How many elements of windows count along one axis, by position."""
    before, after = window.cut[n] if include_pad else (0, 0)
    start = np.arange(places) * window.strides[n] - window.cut[n][0]
    past = [-(-(end - start) // window.dilations[n]) for end in (-before, extent + after)]
    first, end = (np.clip(taps, 0, known_dim(window.kernel[n])) for taps in past)
    return (end - first).astype(np.float64)


def _totals(x: Array, window: Window, places: Sequence[int]) -> Array:
    """The sum over every window, by NumPy."""
    total = np.zeros((*x.shape[:2], *places), x.dtype)
    for part, _ in PooledWindow.over(window, x.shape[2:]).patches(x, places, 0):
        total += part
    return total


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
    total = _summed(x, window, out.shape, work, ceil_mode, "avg_pool_sum")
    clips = PooledWindow.over(window, x.shape[2:]).is_clipped

    def element(*i: Expr) -> Expr:
        counts = [
            _count(window, n, i[n + 2], x.shape[n + 2], ceil_mode, count_include_pad)
            for n in range(window.rank)
        ]
        # A product of counts far larger than the image would not fit 64 bits.
        sizes = [te.cast(c, work) for c in counts] if clips else counts
        count = te.cast(reduce(mul, sizes[1:], as_expr(sizes[0])), work)
        return te.cast(total[i] / count, x.dtype)

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
    ceil: bool,
    name: str,
    power: int | None = None,
) -> te.Tensor:
    """The sum over every window of the elements, or of powers of their magnitudes."""
    seen = PooledWindow.over(window, x.shape[2:])
    rk = seen.axes()
    sticks_out = seen.is_clipped or (ceil and any(s != 1 for s in window.strides))
    image = x if sticks_out else window.padded(x)

    def element(*i: Expr) -> Any:
        value, inside = image[(*i[:2], *window.at(i[2:], rk))], None
        if sticks_out:
            value, inside = seen.inside(x, i, rk)
        value = te.cast(value, work)
        value = value if power is None else _power(te.abs(value), power)
        return te.sum(value, axis=rk, where=inside)

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
    return TensorType(x.dtype, pooled_shape(x, kernel, strides, pads, dilations, ceil_mode))


@lp_pool.reference
def lp_pool_reference(
    x: Array, *, kernel: Ints, p: int, strides: Ints, pads: Ints, dilations: Ints, ceil_mode: bool
) -> Array:
    window = Window.of(kernel, strides, pads, dilations).numbers()
    places = pooled_places(window, x.shape, ceil_mode)
    total = _totals(np.abs(x.astype(np.float64)) ** p, window, places)
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
    total = _summed(x, window, out.shape, work, ceil_mode, "lp_pool_sum", p)
    return mapped(lambda e: te.cast(root(e, p), x.dtype), total, name="lp_pool")


def root(value: Expr, p: int) -> Expr:
    """The p-th root."""
    if p == 1:
        return value
    return te.sqrt(value) if p == 2 else te.pow(value, te.const(1.0 / p, value.dtype))


for _op in (avg_pool, lp_pool):
    _op.layouts(window_layouts)
