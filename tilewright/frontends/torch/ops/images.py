"""Convolutions, pooling and resizing of images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.frontends.common.padding import simplified
from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.reduction import place_of
from tilewright.frontends.torch.table import converts
from tilewright.graph import Dim, Value, product
from tilewright.ir import Const, as_expr
from tilewright.support.errors import UserError


def spread(given: Any, rank: int, default: int = 0) -> list[int]:
    """A number for each spatial axis, where a single one is for all."""
    found = [int(v) for v in given] if given else [default]
    return found * rank if len(found) == 1 else found


# ---- convolutions -------------------------------------------------------------------------------


@converts("convolution", "_convolution")
def convolution(n: Node) -> Value:
    x, weight, bias = n.tensor("input"), n.tensor("weight"), n.maybe("bias")
    rank = weight.ndim - 2
    unbatched = x.ndim == rank + 1
    x = n.builder.unsqueeze(x, axes=[0]) if unbatched else x
    pads = spread(n["padding"], rank)
    attrs: dict[str, Any] = {
        "strides": spread(n["stride"], rank, 1),
        "dilations": spread(n["dilation"], rank, 1),
        "groups": int(n["groups"]),
        "pads": [*pads, *pads],
    }
    if not x.dtype.is_float:
        # Integers below 2**53 are exact in float64.
        x, weight = n.cast(x, "float64"), n.cast(weight, "float64")
        bias = None if bias is None else n.cast(bias, "float64")
    if n["transposed"]:
        extra = spread(n["output_padding"], rank)
        made = n.builder.conv_transpose(x, weight, bias, **attrs, output_pads=extra)
    else:
        made = n.builder.conv(x, weight, bias, **attrs)
    made = n.cast(made, n.dtype)
    return n.builder.squeeze(made, axes=[0]) if unbatched else made


# ---- pooling ------------------------------------------------------------------------------------


def batched(n: Node, x: Value, rank: int) -> tuple[Value, bool]:
    """An image with a batch dimension, and whether that was added."""
    if x.ndim == rank + 2:
        return x, False
    return n.builder.unsqueeze(x, axes=[0]), True


def _rank(name: str) -> int:
    return next(int(c) for c in name if c in "123")


def window(n: Node, rank: int) -> dict[str, Any]:
    kernel = spread(n["kernel_size"], rank)
    stride = n.get("stride")
    pads = spread(n.get("padding"), rank)
    return {
        "kernel": kernel,
        "strides": spread(stride, rank) if stride else kernel,
        "pads": [*pads, *pads],
        "ceil_mode": bool(n.get("ceil_mode", False)),
    }


@converts("max_pool1d", "max_pool2d", "max_pool3d")
@converts("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def max_pool(n: Node) -> Any:
    rank = _rank(n.op)
    x, added = batched(n, n.tensor("self"), rank)
    attrs = window(n, rank) | {"dilations": spread(n.get("dilation"), rank, 1)}
    if "indices" not in n.op:
        made = n.builder.max_pool(x, **attrs)
        return n.builder.squeeze(made, axes=[0]) if added else made
    values, places = n.builder.max_pool(x, **attrs, return_indices=True)
    # torch counts within each image of one channel.
    size = n.number(product(x.shape[2:]), "int64")
    places = n.builder.mod(places, size)
    if not added:
        return [values, places]
    return [n.builder.squeeze(v, axes=[0]) for v in (values, places)]


@converts("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(n: Node) -> Value:
    rank, b = _rank(n.op), n.builder
    x, added = batched(n, n.tensor("self"), rank)
    attrs = window(n, rank) | {"count_include_pad": bool(n.get("count_include_pad", True))}
    divisor = n.get("divisor_override")
    if not x.dtype.is_float:
        x = n.cast(x, "float64")
    if divisor:
        made = _summed(n, x, attrs)
        made = b.div(made, n.like(divisor, made))
    else:
        made = b.avg_pool(x, **attrs)
    made = n.cast(made, n.dtype)
    return b.squeeze(made, axes=[0]) if added else made


def _summed(n: Node, x: Value, attrs: dict[str, Any]) -> Value:
    """The sums of windows: the norm of power 1 of the positive and the negative part."""
    b = n.builder
    del attrs["count_include_pad"]
    zero = n.like(0, x)
    above, below = b.maximum(x, zero), b.minimum(x, zero)
    return b.sub(b.lp_pool(above, p=1, **attrs), b.lp_pool(below, p=1, **attrs))


@converts(*(f"{prefix}adaptive_avg_pool{k}d" for prefix in ("", "_") for k in (1, 2, 3)))
def adaptive_avg_pool(n: Node) -> Value:
    rank, b = _rank(n.op), n.builder
    x, added = batched(n, n.tensor("self"), rank)
    for k, size in enumerate(n.shape[-rank:]):
        x = _averaged(n, x, x.ndim - rank + k, size)
    return b.squeeze(x, axes=[0]) if added else x


def _averaged(n: Node, x: Value, axis: int, size: Dim) -> Value:
    """Means of parts along an axis, which may overlap by one element."""
    b, extent = n.builder, x.shape[axis]
    if size == 1:
        return b.mean(x, axes=[axis], keepdims=True)
    if extent is as_expr(size):
        return x
    if not isinstance(size, int):
        raise UserError("adaptive pooling to a size that is not known", remedy="fix it")
    if isinstance(extent, Const) and int(extent.value) % size == 0:
        parts = [*x.shape[:axis], size, int(extent.value) // size, *x.shape[axis + 1 :]]
        return b.mean(b.reshape(x, shape=parts), axes=[axis + 1])
    means = [
        b.mean(b.slice(x, starts=[first], ends=[last], axes=[axis]), axes=[axis], keepdims=True)
        for first, last in _parts(extent, size)
    ]
    return b.concat(*means, axis=axis)


def _parts(extent: Dim, count: int) -> list[tuple[Dim, Dim]]:
    """Where each of `count` parts of a dimension begins and ends; they may overlap."""
    whole = as_expr(extent)
    return [
        (simplified(whole * k // count), simplified((whole * (k + 1) + (count - 1)) // count))
        for k in range(count)
    ]


@converts("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(n: Node) -> list[Value]:
    """The greatest element of each part, and where it is in its image."""
    rank, b = _rank(n.op), n.builder
    x, added = batched(n, n.tensor("self"), rank)
    sizes = [d for d in n.shape[-rank:] if isinstance(d, int)]
    extents = x.shape[-rank:]
    if len(sizes) != rank:
        raise UserError("adaptive pooling to a size that is not known", remedy="fix it")
    flat = b.reshape(x, shape=[*x.shape[:-rank], -1])

    zero, one = n.constant(0, "int64"), n.constant(1, "int64")
    grid = b.reshape(b.ramp(zero, one, size=flat.shape[2]), shape=list(extents))
    places: list[Value] = []
    for part in itertools.product(*(_parts(e, s) for e, s in zip(extents, sizes, strict=True))):
        first, last = ([p[k] for p in part] for k in (0, 1))
        inside = b.slice(grid, starts=first, ends=last, axes=list(range(rank)))
        own = b.reshape(inside, shape=[-1])
        taken = b.gather(flat, own, axis=2)
        best = place_of(n, taken, 2, True)
        places.append(b.gather(own, best, axis=0))
    where = b.concat(*places, axis=2) if len(places) > 1 else places[0]
    values = b.gather_elements(flat, where, axis=2)
    shape = list(n.shape) if not added else [1, *n.shape]
    made = [b.reshape(v, shape=shape) for v in (values, where)]
    return [b.squeeze(v, axes=[0]) for v in made] if added else made


@converts("max_unpool2d", "max_unpool3d")
def max_unpool(n: Node) -> Value:
    rank, b = _rank(n.op), n.builder
    x, places = n.tensor("self"), n.tensor("indices")
    lead = x.shape[:-rank]
    flat, at = (b.reshape(v, shape=[*lead, -1]) for v in (x, places))
    empty = n.full(0, [*lead, product(n.shape[-rank:])], x.dtype)
    made = b.scatter_elements(empty, at, flat, axis=len(lead))
    return b.reshape(made, shape=n.shape)


@converts("im2col")
def im2col(n: Node) -> Value:
    """Windows as columns: N×(C·kernel)×positions."""
    b = n.builder
    x, added = batched(n, n.tensor("self"), 2)
    kernel, strides = spread(n["kernel_size"], 2), spread(n["stride"], 2, 1)
    pads, dilations = spread(n["padding"], 2), spread(n["dilation"], 2, 1)
    image = b.transpose(x, axes=[0, 2, 3, 1])
    seen = b.patches(
        image, kernel=kernel, strides=strides, pads=[*pads, *pads], dilations=dilations
    )
    # N×positions×kernel×C
    rows, columns = seen.shape[1:3]
    transposed = b.transpose(seen, axes=[0, 5, 3, 4, 1, 2])
    size = kernel[0] * kernel[1]
    made = b.reshape(transposed, shape=[x.shape[0], x.shape[1] * size, rows * columns])
    return b.squeeze(made, axes=[0]) if added else made


@converts("col2im")
def col2im(n: Node) -> Value:
    b, x = n.builder, n.tensor("self")
    added = x.ndim == 2
    x = b.unsqueeze(x, axes=[0]) if added else x
    pads = spread(n["padding"], 2)
    made = b.col2im(
        x,
        image=n.dims("output_size"),
        block=spread(n["kernel_size"], 2),
        strides=spread(n["stride"], 2, 1),
        dilations=spread(n["dilation"], 2, 1),
        pads=[*pads, *pads],
    )
    return b.squeeze(made, axes=[0]) if added else made


# ---- resizing -----------------------------------------------------------------------------------


@converts(*(f"{prefix}upsample_nearest{k}d" for prefix in ("", "_") for k in ("1", "2", "3")))
@converts(*(f"_upsample_nearest_exact{k}d" for k in ("1", "2", "3")))
@converts("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
@converts("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def upsample(n: Node) -> Value:
    x = n.tensor("self" if "self" in n else "input")
    rank, name = x.ndim - 2, n.op.partition(".")[0]
    aligned = bool(n.get("align_corners", False))
    is_nearest = "nearest" in name
    if is_nearest:
        coordinates = "half_pixel" if "exact" in name else "asymmetric"
    else:
        coordinates = "align_corners" if aligned else "half_pixel"
    attrs: dict[str, Any] = {
        "axes": list(range(2, x.ndim)),
        "mode": "nearest" if is_nearest else "cubic" if "bicubic" in name else "linear",
        "coordinates": coordinates,
        "nearest": "floor",
        "antialias": name.endswith("_aa"),
        "exclude_outside": name.endswith("_aa"),
        "cubic_a": -0.5 if name.endswith("_aa") else -0.75,
    }
    if is_nearest and "exact" in name:
        attrs["nearest"] = "round_prefer_ceil"
    scales = _scales(n, rank)
    sizes = n.shape[2:]
    real = n.cast(x, "float32") if not x.dtype.is_float else x
    if scales is not None and not aligned and _scaled(x, scales, sizes):
        made = n.builder.resize(real, scales=scales, **attrs)
    else:
        made = n.builder.resize(real, sizes=list(sizes), **attrs)
    return n.cast(made, n.dtype)


def _scales(n: Node, rank: int) -> list[float] | None:
    given = n.get("scale_factors")
    if given:
        return [float(s) for s in given]
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}
    found = [n.get(name) for name in names[rank]]
    return [float(s) for s in found] if all(s is not None for s in found) else None


def _scaled(x: Value, scales: Sequence[float], sizes: Sequence[Dim]) -> bool:
    """Whether the scales give the sizes that torch has; only then may they be given instead."""
    for extent, scale, size in zip(x.shape[2:], scales, sizes, strict=True):
        if isinstance(extent, Const) and int(int(extent.value) * scale) != size:
            return False
    return True


@converts("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(n: Node) -> Value:
    mode = ("linear", "nearest", "cubic")[int(n["interpolation_mode"])]
    padding = ("zeros", "border", "reflection")[int(n["padding_mode"])]
    return n.builder.grid_sample(
        n.tensor("input"),
        n.tensor("grid"),
        mode=mode,
        padding=padding,
        align_corners=bool(n["align_corners"]),
    )


@converts("affine_grid_generator")
def affine_grid(n: Node) -> Value:
    size = [d for k, d in enumerate(n.dims("size")) if k > 1]
    return n.builder.affine_grid(
        n.tensor("theta"), size=size, align_corners=bool(n["align_corners"])
    )
