"""Regions and grids of images."""

from __future__ import annotations

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.frontends.onnx.windows import kernel_of_weight, read_window
from tilewright.graph import Dim, Value
from tilewright.support.errors import UserError


@converts("RoiAlign")
def roi_align(n: Node) -> Value:
    # Before version 16 coordinates were not shifted by half a pixel.
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    coordinates = n.text("coordinate_transformation_mode", default)
    return n.builder.roi_align(
        n[0],
        n[1],
        n[2],
        size=[n.integer("output_height", 1), n.integer("output_width", 1)],
        sampling_ratio=n.integer("sampling_ratio", 0),
        spatial_scale=n.real("spatial_scale", 1.0),
        mode=n.text("mode", "avg"),
        half_pixel=coordinates == "half_pixel",
    )


@converts("MaxRoiPool")
def max_roi_pool(n: Node) -> Value:
    return n.builder.max_roi_pool(
        n[0], n[1], size=n.integers("pooled_shape"), spatial_scale=n.real("spatial_scale", 1.0)
    )


@converts("DeformConv")
def deform_conv(n: Node) -> Value:
    window = read_window(n, n[0], kernel_of_weight(n, n[1]))
    return n.builder.deform_conv(
        *(n.get(k) for k in range(5)),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=n.integer("group", 1),
        offset_groups=n.integer("offset_group", 1),
    )


@converts("GridSample")
def grid_sample(n: Node) -> Value:
    mode = n.text("mode", "linear" if n.version >= 20 else "bilinear")
    return n.builder.grid_sample(
        n[0],
        n[1],
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding=n.text("padding_mode", "zeros"),
        align_corners=n.flag("align_corners"),
    )


@converts("Col2Im")
def col2im(n: Node) -> Value:
    return n.builder.col2im(
        n[0],
        image=n.dims(1),
        block=n.numbers(2),
        strides=n.integers("strides", None),
        pads=n.integers("pads", None),
        dilations=n.integers("dilations", None),
    )


@converts("ImageDecoder")
def image_decoder(n: Node) -> Value:
    return n.builder.decode_image(n[0], channels=n.text("pixel_format", "RGB").lower())


@converts("AffineGrid")
def affine_grid(n: Node) -> Value:
    """The positions to which an affine map takes an image's pixels: N×H×W×2, or one rank more."""
    b, theta, sizes = n.builder, n[0], n.dims(1)
    rank = len(sizes) - 2
    if rank not in (2, 3) or theta.ndim != 3:
        raise UserError(f"an affine grid of {rank} dimensions by {theta}")
    spatial = sizes[2:]
    axes = [_coordinates(n, k + 2, spatial[k]) for k in range(rank)]
    # The last dimension is the first coordinate.
    planes = [
        b.expand(b.unsqueeze(axis, axes=[d for d in range(rank) if d != k]), shape=spatial)
        for k, axis in reversed(list(enumerate(axes)))
    ]
    ones = b.full(n.scalar(1.0, theta), shape=spatial)
    places = b.concat(*(b.reshape(p, shape=[-1, 1]) for p in (*planes, ones)), axis=1)
    moved = b.matmul(places, theta, transpose_b=True)
    return b.reshape(moved, shape=[theta.shape[0], *spatial, rank])


def _coordinates(n: Node, index: int, extent: Dim) -> Value:
    """Positions from -1 to 1: of the first and the last pixel, or of their outer edges."""
    b, theta = n.builder, n[0]
    count = b.cast(b.gather(n[1], n.constant(index, "int64"), axis=0), dtype=theta.dtype)
    zero, one, two = (n.scalar(v, theta) for v in (0.0, 1.0, 2.0))
    steps = b.ramp(zero, one, size=extent)
    if n.flag("align_corners"):
        between = b.maximum(b.sub(count, one), one)
        return b.sub(b.div(b.mul(steps, two), between), one)
    return b.sub(b.div(b.add(b.mul(steps, two), one), count), one)
