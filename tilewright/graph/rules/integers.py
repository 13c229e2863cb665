"""Products of bytes: machines multiply bytes in groups of four adjacent channels.

A zero point of one factor costs a sum over all of the other: constant bytes absorb theirs.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import is_single, known_dim, product
from tilewright.graph.rules.centred import centred_bytes
from tilewright.graph.rules.site import Site


def _without_zeros(s: Site) -> Value | None:
    """product(x, w, 0, q) = product(x, w - q), where w - q are bytes"""
    x, weight, x_zero, weight_zero = s.call.args
    kept = _unless_nought(x_zero), _unless_nought(weight_zero)
    axis = 0 if s.call.op.name == "conv_integer" else s.arg(1).ndim - 1
    if kept[1] is not None and weight is not None and weight.is_constant:
        bytes_ = centred_bytes(weight, kept[1], axis) if s.makers.may_change(weight) else None
        if bytes_ is not None:
            return s.again(s.call, [x, s.constant(bytes_), kept[0], None])
    return None if kept == (x_zero, weight_zero) else s.again(s.call, [x, weight, *kept])


def _unless_nought(zero: Value | None) -> Value | None:
    is_nought = zero is not None and zero.constant is not None and not zero.constant.any()
    return None if is_nought else zero


def _as_product(s: Site) -> Value | None:
    """conv(x, w) = patches(x, channels last) @ w, for all channels at once"""
    x, weight, (x_zero, weight_zero) = s.arg(0), s.arg(1), s.call.args[2:4]
    kernel = [known_dim(d) for d in weight.shape[2:]]
    sizes = [k for k in kernel if k is not None]
    if s.attr("groups") != 1 or len(sizes) != len(kernel) or known_dim(x.shape[1]) is None:
        return None
    spatial = range(2, x.ndim)
    image = s.emit("transpose", x, axes=(0, *spatial, 1))
    if prod(sizes) > 1 or _moves(s):
        window = {name: s.attr(name) for name in ("strides", "pads", "dilations")}
        image = s.emit("patches", image, x_zero, kernel=tuple(sizes), **window)
    outputs, places = s.result.shape[1], s.result.shape[2:]
    depth = product(weight.shape[1:])
    rows = s.emit("reshape", image, shape=(product([x.shape[0], *places]), depth))
    columns = s.emit("transpose", weight, axes=(*spatial, 1, 0))
    columns = s.emit("reshape", columns, shape=(depth, outputs))
    total = s.emit("matmul_integer", rows, columns, x_zero, weight_zero)
    total = s.emit("reshape", total, shape=(x.shape[0], *places, outputs))
    return s.emit("transpose", total, axes=(0, x.ndim - 1, *range(1, x.ndim - 1)))


def _moves(s: Site) -> bool:
    """Whether a window of one element skips pixels or reads padding, or sizes are unknown."""
    strides, pads, extents = s.attr("strides"), s.attr("pads"), s.x.shape[2:]
    stays = all(n == 1 for n in strides) and all(known_dim(p) == 0 for p in pads)
    return not stays or any(known_dim(n) is None for n in extents)


def _as_conv(s: Site) -> Value | None:
    """conv(x, w) = conv(x - its zero, w - its zero) in int32, where channels are in groups"""
    if s.attr("groups") == 1:
        return None
    x, weight = (_centred(s, *s.call.args[k : k + 3 : 2]) for k in (0, 1))
    return s.emit("conv", x, weight, **s.attrs)


def _in_steps(s: Site) -> Value | None:
    """quantized conv(x, w) = quantize(conv(x, w) · scale of x · scale of w / scale of y)"""
    x, x_scale, x_zero, weight, weight_scale = (s.arg(k) for k in range(5))
    weight_zero, bias = s.call.args[5], s.call.args[8]
    y_scale, y_zero = _single(s, s.arg(6)), _single(s, s.arg(7))
    total = s.emit("conv_integer", x, weight, x_zero, weight_zero, **s.attrs)
    rank = s.result.ndim
    if bias is not None:
        total = s.emit("add", total, _per_channel(s, bias, rank))
    factor = s.emit("mul", _single(s, x_scale), _per_channel(s, weight_scale, rank))
    factor = s.emit("div", factor, y_scale)
    real = s.emit("mul", s.emit("cast", total, dtype=factor.dtype), factor)
    one = s.constant(np.ones((), factor.dtype.numpy), factor)
    return s.emit("quantize", real, one, y_zero)


def _per_channel(s: Site, x: Value, rank: int) -> Value:
    """One number for each channel, or one for all, in a shape that broadcasts to images."""
    if is_single(x.shape):
        return _single(s, x)
    return s.emit("reshape", x, shape=(-1, *[1] * (rank - 2)))


def _single(s: Site, x: Value) -> Value:
    return s.emit("reshape", x, shape=()) if x.ndim else x


def _centred(s: Site, x: Value | None, zero: Value | None) -> Value:
    """A quantized tensor minus its zero point, not scaled; channels are the first axis."""
    assert x is not None
    wide = s.emit("cast", x, dtype=s.result.dtype)
    if zero is None:
        return wide
    zero = _per_channel(s, zero, x.ndim + 1)
    return s.emit("sub", wide, s.emit("cast", zero, dtype=s.result.dtype))


RULES = {
    "matmul_integer": (_without_zeros,),
    "conv_integer": (_without_zeros, _as_product, _as_conv),
    "qlinear_conv": (_in_steps,),
}
