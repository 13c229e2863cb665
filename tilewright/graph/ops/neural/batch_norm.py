"""Normalisation of channels: by given moments, by those of the batch, or of each image."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.ops.neural.normalized import (
    moments,
    moments_reference,
    per_channel,
    require_channels,
    scaled,
)
from tilewright.graph.ops.reduce.reduced import accumulator, sorted_axes
from tilewright.graph.sizes.agreement import require_multiple
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- batch norm ---------------------------------------------------------------------------------


@op
def batch_norm(
    x: Value, scale: Value, bias: Value, mean: Value, var: Value, *, epsilon: float = 1e-5
) -> Type:
    """(x - mean) / sqrt(var + epsilon) * scale + bias for each channel of N×C×…"""
    require_kind("float", x, scale, bias, mean, var)
    require_channels(x, scale, bias, mean, var)
    return x.type


@batch_norm.reference
def batch_norm_reference(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float
) -> Array:
    s, b, m, v = (per_channel(p, x.ndim) for p in (scale, bias, mean, var))
    with np.errstate(all="ignore"):
        return ((x.astype(np.float64) - m) / np.sqrt(v + epsilon) * s + b).astype(x.dtype)


@batch_norm.compute
def batch_norm_compute(
    x: te.Tensor,
    scale: te.Tensor,
    bias: te.Tensor,
    mean: te.Tensor,
    var: te.Tensor,
    *,
    epsilon: float,
) -> te.Tensor:
    work = accumulator(x.dtype)

    def element(*i: Expr) -> Expr:
        c = i[1]
        factor = te.cast(scale[c], work) * te.rsqrt(te.cast(var[c], work) + epsilon)
        centred = te.cast(x[i], work) - te.cast(mean[c], work)
        return te.cast(centred * factor + te.cast(bias[c], work), x.dtype)

    return te.compute(x.shape, element, name="batch_norm")


@op
def batch_norm_training(
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> tuple[Type, ...]:
    """Normalised by the batch's own moments; also running mean and variance, which keep
    `momentum` of the old ones."""
    require_kind("float", x, scale, bias, mean, var)
    require_channels(x, scale, bias, mean, var)
    return x.type, mean.type, var.type


@batch_norm_training.reference
def batch_norm_training_reference(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
) -> tuple[Array, ...]:
    own_mean, own_var = (m.ravel() for m in moments_reference(x, _all_but_channels(x.ndim)))
    y = batch_norm_reference(x, scale, bias, own_mean, own_var, epsilon=epsilon)
    running = [
        (old * momentum + new * (1 - momentum)).astype(old.dtype)
        for old, new in ((mean, own_mean), (var, own_var))
    ]
    return y, running[0], running[1]


@batch_norm_training.compute
def batch_norm_training_compute(
    x: te.Tensor,
    scale: te.Tensor,
    bias: te.Tensor,
    mean: te.Tensor,
    var: te.Tensor,
    *,
    epsilon: float,
    momentum: float,
) -> tuple[te.Tensor, ...]:
    own = moments(x, _all_but_channels(x.ndim), "batch_norm")
    work = own[0].dtype

    def at(c: Expr) -> tuple[Any, ...]:
        return tuple(c if n == 1 else te.const(0) for n in range(x.ndim))

    def element(*i: Expr) -> Expr:
        c = i[1]
        centred = te.cast(x[i], work) - own[0][at(c)]
        value = centred * te.rsqrt(own[1][at(c)] + epsilon)
        return te.cast(scaled(value, scale[c], bias[c]), x.dtype)

    def running(old: te.Tensor, new: te.Tensor, name: str) -> te.Tensor:
        def mixed(c: Expr) -> Expr:
            value = te.cast(old[c], work) * momentum + new[at(c)] * (1 - momentum)
            return te.cast(value, old.dtype)

        return te.compute(old.shape, mixed, name=name)

    y = te.compute(x.shape, element, name="batch_norm")
    return y, running(mean, own[0], "running_mean"), running(var, own[1], "running_var")


def _all_but_channels(rank: int) -> Ints:
    return tuple(n for n in range(rank) if n != 1)


# ---- instance and group norm --------------------------------------------------------------------


@op
def instance_norm(x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Type:
    """Every channel of every image brought to mean 0 and variance 1, times scale, plus bias."""
    require_kind("float", x, scale, bias)
    require_channels(x, scale, bias)
    return x.type


@instance_norm.reference
def instance_norm_reference(x: Array, scale: Array, bias: Array, *, epsilon: float) -> Array:
    mean, var = moments_reference(x, tuple(range(2, x.ndim)))
    s, b = per_channel(scale, x.ndim), per_channel(bias, x.ndim)
    return ((x - mean) / np.sqrt(var + epsilon) * s + b).astype(x.dtype)


@instance_norm.compute
def instance_norm_compute(
    x: te.Tensor, scale: te.Tensor, bias: te.Tensor, *, epsilon: float
) -> te.Tensor:
    mean, var = moments(x, tuple(range(2, x.ndim)), "instance_norm")

    def element(*i: Expr) -> Expr:
        at = (i[0], i[1], *[te.const(0)] * (x.ndim - 2))
        value = (te.cast(x[i], mean.dtype) - mean[at]) * te.rsqrt(var[at] + epsilon)
        return te.cast(scaled(value, scale[i[1]], bias[i[1]]), x.dtype)

    return te.compute(x.shape, element, name="instance_norm")


@op
def group_norm(x: Value, scale: Value, bias: Value, *, groups: int, epsilon: float = 1e-5) -> Type:
    """Every group of channels of every image brought to mean 0 and variance 1, times scale, plus
    bias, of which there is one for each channel."""
    require_kind("float", x, scale, bias)
    require_channels(x, scale, bias)
    if groups < 1:
        raise UserError(f"there are {groups} groups of channels")
    require_multiple(x.shape[1], groups, "channels in groups")
    return x.type


@group_norm.reference
def group_norm_reference(
    x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float
) -> Array:
    split = x.reshape(x.shape[0], groups, -1)
    mean, var = moments_reference(split, (2,))
    normal = ((split - mean) / np.sqrt(var + epsilon)).reshape(x.shape)
    return (normal * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(x.dtype)


@group_norm.compute
def group_norm_compute(
    x: te.Tensor, scale: te.Tensor, bias: te.Tensor, *, groups: int, epsilon: float
) -> te.Tensor:
    size = simplify_size(te.floordiv(x.shape[1], groups))

    def grouped(n: Expr, g: Expr, c: Expr, *i: Expr) -> Expr:
        return x[(n, g * size + c, *i)]

    rows = te.compute((x.shape[0], groups, size, *x.shape[2:]), grouped, name="groups")
    mean, var = moments(rows, tuple(range(2, rows.ndim)), "group_norm")

    def element(*i: Expr) -> Expr:
        at = (i[0], te.floordiv(i[1], size), *[te.const(0)] * (rows.ndim - 2))
        value = (te.cast(x[i], mean.dtype) - mean[at]) * te.rsqrt(var[at] + epsilon)
        return te.cast(scaled(value, scale[i[1]], bias[i[1]]), x.dtype)

    return te.compute(x.shape, element, name="group_norm")


# ---- mean and variance --------------------------------------------------------------------------


@op
def mean_variance_norm(x: Value, *, axes: Ints = (0, 2, 3), epsilon: float = 1e-9) -> Type:
    """(x - mean) / (sqrt(variance) + epsilon) with the moments over `axes`."""
    require_kind("float", x)
    sorted_axes(axes, x.ndim)
    return x.type


@mean_variance_norm.reference
def mean_variance_norm_reference(x: Array, *, axes: Ints, epsilon: float) -> Array:
    mean, var = moments_reference(x, tuple(a % x.ndim for a in axes))
    with np.errstate(all="ignore"):
        return ((x - mean) / (np.sqrt(var) + epsilon)).astype(x.dtype)


@mean_variance_norm.compute
def mean_variance_norm_compute(x: te.Tensor, *, axes: Ints, epsilon: float) -> te.Tensor:
    mean, var = moments(x, tuple(sorted(a % x.ndim for a in axes)), "mvn")

    def element(e: Expr, m: Expr, v: Expr) -> Expr:
        return te.cast((te.cast(e, mean.dtype) - m) / (te.sqrt(v) + epsilon), x.dtype)

    return mapped(element, x, mean, var, name="mean_variance_norm")


# ---- local response -----------------------------------------------------------------------------


@op
def lrn(x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Type:
    """x / (bias + alpha / size * the sum of squares over `size` neighbouring channels) ** beta."""
    require_kind("float", x)
    require_channels(x)
    if size < 1:
        raise UserError(f"lrn cannot sum over {size} channels")
    return x.type


@lrn.reference
def lrn_reference(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    wide = x.astype(np.float64)
    total = np.zeros_like(wide)
    for c in range(x.shape[1]):
        low, high = max(0, c - (size - 1) // 2), c + size // 2 + 1
        total[:, c] = (wide[:, low:high] ** 2).sum(axis=1)
    return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)


@lrn.compute
def lrn_compute(x: te.Tensor, *, size: int, alpha: float, beta: float, bias: float) -> te.Tensor:
    work = accumulator(x.dtype)
    # Channels beyond the ends add nothing, however many of them the window spans.
    most = known_dim(x.shape[1])
    before, after = (n if most is None else min(n, most) for n in ((size - 1) // 2, size // 2))
    k = te.reduce_axis(before + after + 1, name="k")

    def squares(*i: Expr) -> Any:
        c = i[1] + k - before
        value = te.cast(x[(i[0], c, *i[2:])], work)
        return te.sum(value * value, axis=k, where=te.all_of(c >= 0, c < x.shape[1]))

    total = te.compute(x.shape, squares, name="lrn_squares")

    def element(e: Expr, t: Expr) -> Expr:
        power = te.pow(t * (alpha / size) + bias, te.const(beta, work))
        return te.cast(te.cast(e, work) / power, x.dtype)

    return mapped(element, x, total, name="lrn")
