"""Pooling over windows, over whole images, and to a given size."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.keras.images import (
    as_before,
    channels_first,
    is_channels_last,
    window_of,
)
from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


def _attributes(n: Layer, image: Value) -> dict[str, Any]:
    rank = image.ndim - 2
    kernel = n.config.integers("pool_size", rank)
    strides = n.config.integers("strides", rank, list(kernel))
    window = window_of(n, image, kernel, strides, [1] * rank)
    return {"kernel": kernel, "strides": window.strides, "pads": window.pads}


@converts("MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "MaxPool1D", "MaxPool2D", "MaxPool3D")
def max_pooling(n: Layer) -> Value:
    image = channels_first(n, n[0])
    return as_before(n, n.builder.max_pool(image, **_attributes(n, image)))


@converts(
    *("AveragePooling1D", "AveragePooling2D", "AveragePooling3D"),
    *("AvgPool1D", "AvgPool2D", "AvgPool3D"),
)
def average_pooling(n: Layer) -> Value:
    image = channels_first(n, n.computed(n[0]))
    return as_before(n, n.builder.avg_pool(image, **_attributes(n, image)))


def _spatial(n: Layer, x: Value) -> list[int]:
    return list(range(1, x.ndim - 1)) if is_channels_last(n) else list(range(2, x.ndim))


def _of_image(n: Layer, x: Value, op: str) -> Value:
    """One number for each channel; the operators for images have their channels first."""
    pooled = as_before(n, n.builder.emit(op, channels_first(n, x)))
    return pooled if n.config.flag("keepdims") else n.builder.squeeze(pooled, axes=_spatial(n, x))


@converts(
    *("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D"),
    *("GlobalMaxPool1D", "GlobalMaxPool2D", "GlobalMaxPool3D"),
)
def global_max_pooling(n: Layer) -> Value:
    return _of_image(n, n[0], "global_max_pool")


@converts(
    *("GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D"),
    *("GlobalAvgPool1D", "GlobalAvgPool2D", "GlobalAvgPool3D"),
)
def global_average_pooling(n: Layer) -> Value:
    x, b, keeps = n.computed(n[0]), n.builder, n.config.flag("keepdims")
    axes, mask = _spatial(n, x), n.mask
    if mask is None or len(axes) != 1:
        return _of_image(n, x, "global_avg_pool")
    weights = b.unsqueeze(b.cast(mask, dtype=x.dtype), axes=[2 if axes == [1] else 1])
    total = b.sum(x * weights, axes=axes, keepdims=keeps)
    return total / b.sum(weights, axes=axes, keepdims=keeps)


@converts(
    *("AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D"),
    *("AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D"),
)
def adaptive_pooling(n: Layer) -> Value:
    """Windows from floor(k·n/m) up to ceil((k + 1)·n/m), one axis after another."""
    x, b = n.computed(n[0]), n.builder
    axes = _spatial(n, x)
    sizes = n.config.integers("output_size", len(axes))
    reduced = "max" if "Max" in n.kind else "mean"
    for axis, size in zip(axes, sizes, strict=True):
        extent = dim_number(x.shape[axis])
        if not isinstance(extent, int) or not 0 < size <= extent:
            raise UserError(f"pooling {x} to {size} elements along axis {axis}")
        bounds = [(k * extent // size, -(-(k + 1) * extent // size)) for k in range(size)]
        parts = [b.slice(x, starts=[lo], ends=[hi], axes=[axis]) for lo, hi in bounds]
        x = b.concat(*(b.emit(reduced, p, axes=[axis], keepdims=True) for p in parts), axis=axis)
    return x
