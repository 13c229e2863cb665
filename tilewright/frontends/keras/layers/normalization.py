"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.keras.config import as_list, layer_spec
from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError


def _axes(n: Layer, x: Value, default: object = -1) -> list[int]:
    given = n.config.raw("axis", default)
    axes = [given] if isinstance(given, int) else as_list(given)
    if axes is None or not all(isinstance(a, int) for a in axes):
        raise UserError(f"the axis is {given}")
    if any(not -x.ndim <= a < x.ndim for a in axes):
        raise UserError(f"{x} has no axis {given}")
    return sorted({a % x.ndim for a in axes})


def _along(array: Array, axes: Sequence[int], x: Value) -> Array:
    """Parameters of some axes in the rank of a tensor."""
    shape = [1] * x.ndim
    for axis, extent in zip(axes, array.shape, strict=True):
        shape[axis] = extent
    return array.reshape(shape)


@converts("BatchNormalization", "SyncBatchNormalization")
def batch_normalization(n: Layer) -> Value:
    x = n.computed(n[0])
    (axis,) = _axes(n, x)
    scales, centers = n.config.flag("scale", True), n.config.flag("center", True)
    found = n.weights(
        "gamma" if scales else None,
        "beta" if centers else None,
        "moving_mean",
        "moving_variance",
    )
    mean, variance = found[-2:]
    gamma = found[0] if scales else np.ones_like(mean)
    beta = found[1 if scales else 0] if centers else np.zeros_like(mean)
    parameters = [n.weight(p) for p in (gamma, beta, mean, variance)]
    epsilon = n.config.real("epsilon", 1e-3)
    b = n.builder
    if axis == 1:
        return b.batch_norm(x, *parameters, epsilon=epsilon)
    # Channels are second here, and move back afterwards.
    others = [k for k in range(x.ndim) if k != axis]
    order = [others[0], axis, *others[1:]] if axis else [1, 0, *others[1:]]
    if axis == 0:
        raise UserError(f"{n.spec.text} normalises the batch axis")
    normal = b.batch_norm(b.transpose(x, axes=order), *parameters, epsilon=epsilon)
    return b.transpose(normal, axes=[order.index(k) for k in range(x.ndim)])


@converts("LayerNormalization")
def layer_normalization(n: Layer) -> Value:
    x, b = n.computed(n[0]), n.builder
    axes, epsilon = _axes(n, x), n.config.real("epsilon", 1e-3)
    is_rms = n.config.flag("rms_scaling")
    scales = n.config.flag("scale", True) or is_rms
    centers = n.config.flag("center", True) and not is_rms
    found = n.weights("gamma" if scales else None, "beta" if centers else None)
    gamma = n.weight(found[0]) if scales else None
    beta = n.weight(found[-1]) if centers else None
    if is_rms:
        return _by_root_mean_square(n, x, axes, epsilon, found[0], of_variance=True)
    if axes == list(range(axes[0], x.ndim)):
        one = gamma if gamma is not None else n.constant(np.ones(_extents(x, axes)), x.dtype)
        return b.layer_norm(x, one, beta, axis=axes[0], epsilon=epsilon)
    centred = x - b.mean(x, axes=axes, keepdims=True)
    variance = b.mean(centred * centred, axes=axes, keepdims=True)
    result = centred * b.rsqrt(variance + epsilon)
    if scales:
        result = result * n.weight(_along(found[0], axes, x))
    return result + n.weight(_along(found[-1], axes, x)) if centers else result


def _extents(x: Value, axes: Sequence[int]) -> list[int]:
    return [int(d) for d in x.tensor.with_shape(x.shape[a] for a in axes).static_shape]


def _by_root_mean_square(
    n: Layer, x: Value, axes: list[int], epsilon: float, gamma: Array | None, of_variance: bool
) -> Value:
    b = n.builder
    centred = x - b.mean(x, axes=axes, keepdims=True) if of_variance else x
    square = b.mean(centred * centred, axes=axes, keepdims=True)
    result = x * b.rsqrt(square + epsilon)
    return result if gamma is None else result * n.weight(_along(gamma, axes, x))


@converts("RMSNormalization")
def rms_normalization(n: Layer) -> Value:
    x = n.computed(n[0])
    axes, epsilon = _axes(n, x), n.config.real("epsilon", 1e-6)
    (scale,) = n.weights("scale")
    if axes == [x.ndim - 1]:
        return n.builder.rms_norm(x, n.weight(scale), axis=-1, epsilon=epsilon)
    return _by_root_mean_square(n, x, axes, epsilon, scale, of_variance=False)


@converts("GroupNormalization")
def group_normalization(n: Layer) -> Value:
    x, b = n.computed(n[0]), n.builder
    (axis,) = _axes(n, x)
    groups = n.config.integer("groups", 32)
    scales, centers = n.config.flag("scale", True), n.config.flag("center", True)
    found = n.weights("gamma" if scales else None, "beta" if centers else None)
    channels = x.shape[axis]
    (count,) = x.tensor.with_shape([channels]).static_shape
    groups = count if groups == -1 else groups
    gamma = found[0] if scales else np.ones(count, x.dtype.numpy)
    beta = found[-1] if centers else np.zeros(count, x.dtype.numpy)
    order = [0, axis, *(k for k in range(1, x.ndim) if k != axis)]
    first = x if axis == 1 else b.transpose(x, axes=order)
    normal = b.group_norm(
        first,
        n.weight(gamma),
        n.weight(beta),
        groups=groups,
        epsilon=n.config.real("epsilon", 1e-3),
    )
    if axis == 1:
        return normal
    return b.transpose(normal, axes=[order.index(k) for k in range(x.ndim)])


@converts("UnitNormalization")
def unit_normalization(n: Layer) -> Value:
    x, b = n.computed(n[0]), n.builder
    axes = _axes(n, x)
    square = b.sum(x * x, axes=axes, keepdims=True)
    return x * b.rsqrt(b.maximum(square, n.scalar(1e-12, x)))


@converts("Normalization")
def normalization(n: Layer) -> Value:
    """(x - mean) / sqrt(variance), or its inverse; the moments are given or were learned."""
    x, b = n.computed(n[0]), n.builder
    axes = [] if "axis" in n.config.values and n.config.raw("axis") is None else _axes(n, x)
    mean, variance = n.config.raw("mean"), n.config.raw("variance")
    if mean is None or variance is None:
        mean, variance = n.weights("mean", "variance")
    moments = [_moment(np.asarray(m, x.dtype.numpy), axes, x) for m in (mean, variance)]
    spread = np.maximum(np.sqrt(moments[1]), 1e-7)
    if n.config.flag("invert"):
        return n.constant(moments[0], x.dtype) + x * n.constant(spread, x.dtype)
    return b.div(b.sub(x, n.constant(moments[0], x.dtype)), n.constant(spread, x.dtype))


def _moment(found: Array, axes: Sequence[int], x: Value) -> Array:
    if found.ndim == len(axes) and axes:
        return _along(found, axes, x)
    return found


@converts("SpectralNormalization")
def spectral_normalization(n: Layer) -> object:
    """At inference, the wrapped layer with its stored weights."""
    spec = layer_spec(n.config.raw("layer"))
    return n.call(spec, n.stored.child("layer", spec.name), n.args, {})
