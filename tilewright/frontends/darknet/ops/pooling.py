"""Pooling, and images in other sizes."""

from __future__ import annotations

from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("maxpool")
def maxpool(n: Layer) -> Value:
    """Padding on both sides, more at the end if it is odd; by default one less than the window."""
    n.refuse("maxpool_depth")
    n.refuse("antialiasing")
    stride = n.positive("stride", 1)
    size = n.positive("size", stride)
    padding = n.integer("padding", size - 1)
    if not 0 <= padding < 2 * size:
        raise UserError(f"padding is {padding} around windows of {size}")
    before = padding // 2
    return n.builder.max_pool(
        n.x,
        kernel=[size] * 2,
        strides=[n.positive("stride_y", stride), n.positive("stride_x", stride)],
        pads=[before, before, padding - before, padding - before],
    )


@converts("avgpool")
def avgpool(n: Layer) -> Value:
    return n.builder.global_avg_pool(n.x)


@converts("upsample")
def upsample(n: Layer) -> Value:
    stride, b = n.positive("stride", 2), n.builder
    if stride > 1 << 12:
        raise UserError(f"an image is made {stride} times larger")
    made = b.resize(
        n.x,
        scales=[1.0, 1.0, float(stride), float(stride)],
        mode="nearest",
        coordinates="asymmetric",
        nearest="floor",
    )
    scale = n.real("scale", 1.0)
    return made if scale == 1.0 else b.mul(made, scale)


@converts("reorg")
def reorg(n: Layer) -> Value:
    """Pixels become channels. Darknet's own loop treats the image as one of fewer, larger
    channels while it moves pixels, and networks were trained with that."""
    n.refuse("reverse")
    n.refuse("extra")
    b, x, s = n.builder, n.x, n.positive("stride", 1)
    channels, height, width = n.image_shape(x)
    if channels % (s * s) or height % s or width % s:
        raise UserError(f"{x} cannot be divided by {s}")
    batch = x.shape[0]
    seen = b.reshape(x, shape=[batch, channels // (s * s), height * s, width * s])
    moved = b.space_to_depth(seen, block=s)
    return b.reshape(moved, shape=[batch, channels * s * s, height // s, width // s])


@converts("crop")
def crop(n: Layer) -> Value:
    """The centre of the image, scaled from 0…1 to -1…1 unless an option forbids it."""
    b, x = n.builder, n.x
    _, height, width = n.image_shape(x)
    rows, columns = n.positive("crop_height", 1), n.positive("crop_width", 1)
    if rows > height or columns > width:
        raise UserError(f"{rows}×{columns} pixels of {x}")
    top, left = (height - rows) // 2, (width - columns) // 2
    part = b.slice(x, starts=[top, left], ends=[top + rows, left + columns], axes=[2, 3])
    return part if n.flag("noadjust") else b.sub(b.mul(part, 2.0), 1.0)
