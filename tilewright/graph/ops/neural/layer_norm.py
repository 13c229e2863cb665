"""Normalisation along rows: layer norm, root mean square, p-norms."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.ops.neural.normalized import moments, moments_reference, scaled
from tilewright.graph.ops.neural.pooling import root
from tilewright.graph.ops.reduce.reduced import accumulator, count_of, reduce_over, reduced_shape
from tilewright.graph.sizes.axes import axis_of
from tilewright.graph.sizes.broadcast import require_broadcast_to
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- layer norm ---------------------------------------------------------------------------------


@op
def layer_norm(
    x: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    return_stats: bool = False,
) -> Type | tuple[Type, ...]:
    """x brought to mean 0 and variance 1 over the axes from `axis` on, times scale, plus bias.

    `return_stats` gives the mean and 1 / sqrt(variance + epsilon) too, in float32 at least.
    """
    require_kind("float", x)
    _require_fitting(x, scale, bias)
    if not return_stats:
        return x.type
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    stats = TensorType(accumulator(x.dtype), reduced_shape(x.shape, axes, True))
    return x.type, stats, stats


@layer_norm.reference
def layer_norm_reference(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    *,
    axis: int,
    epsilon: float,
    return_stats: bool,
) -> Array | tuple[Array, ...]:
    mean, var = moments_reference(x, tuple(range(axis_of(axis, x.ndim), x.ndim)))
    inverse = 1 / np.sqrt(var + epsilon)
    y = _affine((x.astype(np.float64) - mean) * inverse, scale, bias).astype(x.dtype)
    stats = np.float64 if x.dtype == np.float64 else np.float32
    return (y, mean.astype(stats), inverse.astype(stats)) if return_stats else y


@layer_norm.compute
def layer_norm_compute(
    x: te.Tensor,
    scale: te.Tensor | None,
    bias: te.Tensor | None,
    *,
    axis: int,
    epsilon: float,
    return_stats: bool,
) -> te.Tensor | tuple[te.Tensor, ...]:
    mean, var = moments(x, tuple(range(axis_of(axis, x.ndim), x.ndim)), "layer_norm")
    inverse = mapped(lambda v: te.rsqrt(v + epsilon), var, name="layer_norm_inverse")

    def element(e: Expr, m: Expr, r: Expr, *given: Expr) -> Expr:
        value = (te.cast(e, mean.dtype) - m) * r
        return te.cast(_with(value, scale, bias, given), x.dtype)

    affine = [t for t in (scale, bias) if t is not None]
    y = mapped(element, x, mean, inverse, *affine, shape=x.shape, name="layer_norm")
    return (y, mean, inverse) if return_stats else y


def _with(
    value: Expr, scale: te.Tensor | None, bias: te.Tensor | None, given: tuple[Expr, ...]
) -> Expr:
    """The value with scale and bias, as far as these exist, whose elements are `given`."""
    return scaled(value, None if scale is None else given[0], None if bias is None else given[-1])


def _affine(y: Array, scale: Array | None, bias: Array | None) -> Array:
    y = y if scale is None else y * scale.astype(np.float64)
    return y if bias is None else y + bias.astype(np.float64)


def _require_fitting(x: Value, *parameters: Value | None) -> None:
    for p in parameters:
        if p is None:
            continue
        require_kind("float", p)
        require_broadcast_to(x.shape, p.shape, p.name)


# ---- root mean square ---------------------------------------------------------------------------


@op
def rms_norm(
    x: Value, scale: Value | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Type:
    """x / sqrt(mean(x²) + epsilon) over the axes from `axis` on, times scale."""
    require_kind("float", x)
    axis_of(axis, x.ndim)
    _require_fitting(x, scale)
    return x.type


@rms_norm.reference
def rms_norm_reference(x: Array, scale: Array | None, *, axis: int, epsilon: float) -> Array:
    wide = x.astype(np.float64)
    mean = (wide**2).mean(axis=tuple(range(axis_of(axis, x.ndim), x.ndim)), keepdims=True)
    return _affine(wide / np.sqrt(mean + epsilon), scale, None).astype(x.dtype)


@rms_norm.compute
def rms_norm_compute(
    x: te.Tensor, scale: te.Tensor | None, *, axis: int, epsilon: float
) -> te.Tensor:
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    work = accumulator(x.dtype)
    count = te.cast(count_of(x.shape, axes), work)
    total = reduce_over(te.sum, x, axes, True, lambda e: _square(te.cast(e, work)), "rms_squares")
    inverse = mapped(lambda t: te.rsqrt(t / count + epsilon), total, name="rms_inverse")

    def element(e: Expr, r: Expr, *given: Expr) -> Expr:
        return te.cast(_with(te.cast(e, work) * r, scale, None, given), x.dtype)

    affine = [] if scale is None else [scale]
    return mapped(element, x, inverse, *affine, shape=x.shape, name="rms_norm")


def _square(e: Expr) -> Expr:
    return e * e


# ---- p-norms ------------------------------------------------------------------------------------


@op
def lp_norm(x: Value, *, axis: int = -1, p: int = 2) -> Type:
    """x divided by its `p`-norm along `axis`; where that is 0, 0."""
    require_kind("float", x)
    axis_of(axis, x.ndim)
    if p not in (1, 2):
        raise UserError(f"lp_norm has no {p}-norm", remedy="use p = 1 or p = 2")
    return x.type


@lp_norm.reference
def lp_norm_reference(x: Array, *, axis: int, p: int) -> Array:
    wide = x.astype(np.float64)
    norm = (np.abs(wide) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
    with np.errstate(all="ignore"):
        return np.where(norm == 0, 0, wide / norm).astype(x.dtype)


@lp_norm.compute
def lp_norm_compute(x: te.Tensor, *, axis: int, p: int) -> te.Tensor:
    work = accumulator(x.dtype)

    def power(e: Expr) -> Expr:
        e = te.cast(e, work)
        return te.abs(e) if p == 1 else e * e

    total = reduce_over(te.sum, x, (axis_of(axis, x.ndim),), True, power, "lp_sum")

    def element(e: Expr, t: Expr) -> Expr:
        zero = te.const(0, work)
        return te.cast(te.select(t == zero, zero, te.cast(e, work) / root(t, p)), x.dtype)

    return mapped(element, x, total, name="lp_norm")
