"""Pooling and its inverse, and images in other sizes."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.prototxt import Message
from tilewright.frontends.caffe.table import converts
from tilewright.frontends.caffe.windows import read_window
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("Pooling")
def pooling(n: Layer) -> Any:
    """Overhanging windows count, as long as they start inside. With two tops, a maximum also
    gives its position, as an index into the whole blob."""
    param, b, x = n.param("pooling_param"), n.builder, n[0]
    kind = param.text("pool", "MAX")
    if kind not in ("MAX", "AVE", "0", "1"):
        raise UserError(f"the pooling {kind[:40]} is not supported", remedy="use MAX or AVE")
    kernel = None
    if param.flag("global_pooling"):
        kernel = [n.extent(x, axis) for axis in range(2, x.ndim)]
    window = read_window(param, x, kernel=kernel)
    attrs: dict[str, Any] = {
        "kernel": window.kernel,
        "strides": window.strides,
        "pads": window.both_pads,
        "ceil_mode": _rounds_up(param),
    }
    if kind in ("AVE", "1"):
        return b.avg_pool(x, **attrs, count_include_pad=True)
    return b.max_pool(x, **attrs, return_indices=n.outputs > 1)


def _rounds_up(param: Message) -> bool:
    if "round_mode" in param:
        return param.text("round_mode") in ("CEIL", "0")
    return param.flag("ceil_mode", True)


@converts("Upsample")
def upsample(n: Layer) -> Value:
    """Repeated pixels; with a second operand, pixels at the positions of maxima."""
    param, b, x = n.param("upsample_param"), n.builder, n[0]
    scale = param.integer("scale", 2)
    rows, columns = (param.integer(f"scale_{axis}", scale) for axis in "hw")
    _require_scale(rows, columns)
    if len(n.inputs) > 1:
        height = param.integer("upsample_h", n.extent(x, 2) * rows)
        width = param.integer("upsample_w", n.extent(x, 3) * columns)
        return b.max_unpool(x, n[1], shape=[*x.shape[:2], height, width])
    return b.resize(
        x,
        scales=[1.0, 1.0, float(rows), float(columns)],
        mode="nearest",
        coordinates="asymmetric",
        nearest="floor",
    )


def _require_scale(*factors: int) -> None:
    if any(not 1 <= f <= 1 << 12 for f in factors):
        raise UserError(f"an image is made {list(factors)} times larger")


@converts("Interp")
def interp(n: Layer) -> Value:
    """Linear interpolation with fixed corners; negative padding crops the edges first."""
    param, b, x = n.param("interp_param"), n.builder, n[0]
    begin, end = param.integer("pad_beg", 0), param.integer("pad_end", 0)
    if begin > 0 or end > 0:
        raise UserError(f"padding of {begin} and {end} must not be positive")
    height, width = (n.extent(x, axis) + begin + end for axis in (2, 3))
    if height < 1 or width < 1:
        raise UserError(f"nothing is left of {x}")
    if begin or end:
        ends = [height - begin, width - begin]
        x = b.slice(x, starts=[-begin, -begin], ends=ends, axes=[2, 3])
    sizes = [_resized(param, e) for e in (height, width)]
    if "height" in param and "width" in param:
        sizes = [param.integer("height", 1), param.integer("width", 1)]
    if min(sizes) < 1:
        raise UserError(f"an image of {sizes}")
    if len(n.inputs) > 1:
        sizes = [n.extent(n[1], 2), n.extent(n[1], 3)]
    return b.resize(x, sizes=[*x.shape[:2], *sizes], mode="linear", coordinates="align_corners")


def _resized(param: Message, extent: int) -> int:
    zoom, shrink = param.integer("zoom_factor", 1), param.integer("shrink_factor", 1)
    _require_scale(zoom, shrink)
    smaller = (extent - 1) // shrink + 1
    return smaller + (smaller - 1) * (zoom - 1)


@converts("ROIPooling")
def roi_pooling(n: Layer) -> Value:
    param = n.param("roi_pooling_param")
    size = [param.integer("pooled_h", 0), param.integer("pooled_w", 0)]
    if not all(1 <= s <= 1 << 10 for s in size):
        raise UserError(f"regions are pooled to {size}")
    scale = param.real("spatial_scale", 1.0)
    regions = n.builder.reshape(n[1], shape=[n[1].shape[0], 5])
    return n.builder.max_roi_pool(n[0], regions, size=size, spatial_scale=scale)
