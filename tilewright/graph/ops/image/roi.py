"""Regions of images, pooled to one size."""

# pyright: reportMissingParameterType=false, reportArgumentType=false

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_equal, require_same_shape
from tilewright.ir import DType, Function
from tilewright.support.errors import UserError
from tilewright.tensor import ElementType, i64, parallel, script, te

# ---- roi_align ----------------------------------------------------------------------------------


@op
def roi_align(
    x: Value,
    rois: Value,
    batches: Value,
    *,
    size: Ints,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    half_pixel: bool = True,
) -> Type:
    """Each region (x, y, x, y) of the image that `batches` names, in `size` bins.

    A bin is the mean (or, in the mode "max", the greatest share) of samples between the pixels:
    `sampling_ratio` of them along each side, or as many as there are pixels (0).
    """
    require_kind("float", x)
    require_kind("integer", batches)
    if x.ndim != 4 or rois.ndim != 2 or len(size) != 2 or mode not in ("avg", "max"):
        raise UserError(f"regions {rois} of {x} cannot be pooled to {list(size)} by {mode!r}")
    _require_regions(rois, batches)
    return x.tensor.with_shape([rois.shape[0], x.shape[1], *size])


def _require_regions(rois: Value, batches: Value) -> None:
    require_equal(rois.shape[1], 4, "the numbers of a region and (x, y, x, y)")
    require_same_shape(batches.shape, rois.shape[:1], "batches and regions")


@roi_align.reference
def roi_align_reference(
    x: Array,
    rois: Array,
    batches: Array,
    *,
    size: Ints,
    sampling_ratio: int,
    spatial_scale: float,
    mode: str,
    half_pixel: bool,
) -> Array:
    offset = 0.5 if half_pixel else 0.0
    out = np.zeros((len(rois), x.shape[1], *size), np.float64)
    for region, box in enumerate(rois.astype(np.float64) * spatial_scale - offset):
        low, sides = box[1::-1], box[:1:-1] - box[1::-1]
        sides = sides if half_pixel else np.maximum(sides, 1.0)
        steps = sides / size
        counts = [sampling_ratio or max(0, math.ceil(s)) for s in steps]
        image = x[batches[region]].astype(np.float64)
        for row, column in np.ndindex(*size):
            found = [
                _shares(image, low + steps * ([row, column] + (np.array(k) + 0.5) / counts))
                for k in np.ndindex(*counts)
            ]
            if found and mode == "avg":
                out[region, :, row, column] = sum(c.sum(0) for c in found) / len(found)
            elif found:
                out[region, :, row, column] = np.max(found, (0, 1))
    return out.astype(x.dtype)


def _shares(image: Array, at: Array) -> Array:
    """The weighted four pixels around a position, of each channel."""
    limits = np.array(image.shape[1:])
    if (at < -1).any() or (at > limits).any():
        return np.zeros((4, len(image)))
    at = np.clip(at, 0, limits - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, limits - 1)
    (y, x), (y_, x_) = at - low, 1 - (at - low)
    pixels = [image[:, a, b] for a in (low[0], high[0]) for b in (low[1], high[1])]
    return np.array([w * p for w, p in zip([y_ * x_, y_ * x, y * x_, y * x], pixels, strict=True)])


@roi_align.decompose
def roi_align_decompose(b: Any, x: Value, rois: Value, batches: Value, **how: Any) -> Value:
    wide = "float64" if x.dtype.name == "float64" else "float32"
    pooled = b.roi_samples(
        b.cast(x, dtype=wide), b.cast(rois, dtype=wide), b.cast(batches, dtype="int64"), **how
    )
    return b.cast(pooled, dtype=x.dtype)


@op
def roi_samples(
    x: Value,
    rois: Value,
    batches: Value,
    *,
    size: Ints,
    sampling_ratio: int,
    spatial_scale: float,
    mode: str,
    half_pixel: bool,
) -> Type:
    """`roi_align` for the types that it is computed in."""
    _require_regions(rois, batches)
    return x.tensor.with_shape([rois.shape[0], x.shape[1], *size])


roi_samples.reference(roi_align_reference)


@roi_samples.kernel
def roi_samples_kernel(x: Value, rois: Value, batches: Value, **how: Any) -> Function:
    return _sampling(x.dtype, **how)


@cache
def _sampling(
    dtype: DType,
    size: Ints,
    sampling_ratio: int,
    spatial_scale: float,
    mode: str,
    half_pixel: bool,
) -> Function:
    element: Any = ElementType(dtype)
    rows, columns = size
    scale, averages = spatial_scale, mode == "avg"
    offset = 0.5 if half_pixel else 0.0
    # Regions have at least one pixel, unless coordinates are of the centres of pixels.
    least = -math.inf if half_pixel else 1.0

    @script
    def roi_samples(
        x=element["n", "c", "h", "w"],
        rois=element["r", 4],
        batches=i64["r"],
        out=element["r", "c", rows, columns],
    ):
        _images, channels, height, width = x.shape
        for region in parallel(rois.shape[0]):
            batch = batches[region]
            left = rois[region, 0] * scale - offset
            top = rois[region, 1] * scale - offset
            step_x = max(rois[region, 2] * scale - offset - left, least) / columns
            step_y = max(rois[region, 3] * scale - offset - top, least) / rows
            count_x = sampling_ratio if sampling_ratio > 0 else max(te.ceil(step_x).astype(i64), 0)
            count_y = sampling_ratio if sampling_ratio > 0 else max(te.ceil(step_y).astype(i64), 0)
            total = element(max(count_x * count_y, 1))
            for row in range(rows):
                for column in range(columns):
                    for channel in range(channels):
                        out[region, channel, row, column] = 0.0
                    for k in range(count_y):
                        for m in range(count_x):
                            y = top + step_y * (
                                element(row) + (element(k) + 0.5) / element(count_y)
                            )
                            z = left + step_x * (
                                element(column) + (element(m) + 0.5) / element(count_x)
                            )
                            inside = -1.0 <= y <= element(height) and -1.0 <= z <= element(width)
                            y_ = max(min(y, element(height - 1)), 0.0)
                            z_ = max(min(z, element(width - 1)), 0.0)
                            # Clamped once more, for NaN.
                            above = max(min(y_.astype(i64), height - 1), 0)
                            before = max(min(z_.astype(i64), width - 1), 0)
                            below = min(above + 1, height - 1)
                            after = min(before + 1, width - 1)
                            dy = y_ - element(above)
                            dz = z_ - element(before)
                            for channel in range(channels):
                                a = x[batch, channel, above, before] * ((1.0 - dy) * (1.0 - dz))
                                b = x[batch, channel, above, after] * ((1.0 - dy) * dz)
                                d = x[batch, channel, below, before] * (dy * (1.0 - dz))
                                e = x[batch, channel, below, after] * (dy * dz)
                                share = a + b + d + e if averages else max(a, b, d, e)
                                share_ = share if inside else 0.0
                                if averages:
                                    out[region, channel, row, column] += share_ / total
                                else:
                                    known = out[region, channel, row, column]
                                    is_first = k + m == 0
                                    out[region, channel, row, column] = (
                                        share_ if is_first else max(known, share_)
                                    )

    return roi_samples


# ---- max_roi_pool -------------------------------------------------------------------------------


@op
def max_roi_pool(x: Value, rois: Value, *, size: Ints, spatial_scale: float = 1.0) -> Type:
    """The greatest pixels in `size` bins of each region (batch, x, y, x, y), ends included."""
    require_kind("float", x)
    if x.ndim != 4 or rois.ndim != 2 or len(size) != 2:
        raise UserError(f"regions {rois} of {x} cannot be pooled to {list(size)}")
    require_equal(rois.shape[1], 5, "the numbers of a region and (batch, x, y, x, y)")
    return x.tensor.with_shape([rois.shape[0], x.shape[1], *size])


@max_roi_pool.reference
def max_roi_pool_reference(x: Array, rois: Array, *, size: Ints, spatial_scale: float) -> Array:
    out = np.zeros((len(rois), x.shape[1], *size), x.dtype)
    for region, box in enumerate(rois.astype(np.float64)):
        x0, y0, x1, y1 = (math.floor(v * spatial_scale + 0.5) for v in box[1:])
        start, sides = np.array([y0, x0]), np.maximum([y1 - y0 + 1, x1 - x0 + 1], 1)
        for bin_ in np.ndindex(*size):
            place = np.array(bin_)
            low, high = np.floor(place * sides / size), np.ceil((place + 1) * sides / size)
            ends = (np.clip(v.astype(int) + start, 0, x.shape[2:]) for v in (low, high))
            (a, b), (c, d) = ends
            part = x[int(box[0]), :, a:c, b:d]
            if part.shape[1] and part.shape[2]:
                out[(region, slice(None), *bin_)] = part.max((1, 2))
    return out


@max_roi_pool.decompose
def max_roi_pool_decompose(b: Any, x: Value, rois: Value, **how: Any) -> Value:
    wide = "float64" if x.dtype.name == "float64" else "float32"
    pooled = b.roi_maxima(b.cast(x, dtype=wide), b.cast(rois, dtype=wide), **how)
    return b.cast(pooled, dtype=x.dtype)


@op
def roi_maxima(x: Value, rois: Value, *, size: Ints, spatial_scale: float) -> Type:
    """`max_roi_pool` for the types that it is computed in."""
    require_equal(rois.shape[1], 5, "the numbers of a region and (batch, x, y, x, y)")
    return x.tensor.with_shape([rois.shape[0], x.shape[1], *size])


roi_maxima.reference(max_roi_pool_reference)


@roi_maxima.kernel
def roi_maxima_kernel(x: Value, rois: Value, *, size: Ints, spatial_scale: float) -> Function:
    del rois
    return _maxima(x.dtype, size, spatial_scale)


@cache
def _maxima(dtype: DType, size: Ints, scale: float) -> Function:
    element: Any = ElementType(dtype)
    rows, columns = size

    @script
    def roi_maxima(
        x=element["n", "c", "h", "w"],
        rois=element["r", 5],
        out=element["r", "c", rows, columns],
    ):
        _images, channels, height, width = x.shape
        for region in parallel(rois.shape[0]):
            batch = rois[region, 0].astype(i64)
            left = te.floor(rois[region, 1] * scale + 0.5).astype(i64)
            top = te.floor(rois[region, 2] * scale + 0.5).astype(i64)
            wide = max(te.floor(rois[region, 3] * scale + 0.5).astype(i64) - left + 1, 1)
            high = max(te.floor(rois[region, 4] * scale + 0.5).astype(i64) - top + 1, 1)
            for row in range(rows):
                for column in range(columns):
                    # Bins begin and end at integer pixels: the quotients rounded down and up.
                    y = max(min(row * high // rows + top, height), 0)
                    y_ = max(min((row * high + high + rows - 1) // rows + top, height), 0)
                    z = max(min(column * wide // columns + left, width), 0)
                    z_ = max(min((column * wide + wide + columns - 1) // columns + left, width), 0)
                    for channel in range(channels):
                        best = element(0.0)
                        if y < y_ and z < z_:
                            best = x[batch, channel, y, z]
                            for k in range(y, y_):
                                for m in range(z, z_):
                                    best = max(best, x[batch, channel, k, m])
                        out[region, channel, row, column] = best

    return roi_maxima
