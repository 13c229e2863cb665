"""Convolutions of images, for each layout of the data.

Arguments that all share: `strides` and `dilations` are a number or a pair; `pads` a number, a pair
or (top, left, bottom, right); elements are converted to `out_dtype` before they are multiplied.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.extents import known, plus, require_equal, static, times
from tilewright.tensor.ops.window import Pair, Window


def conv2d_nchw(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    groups: int = 1,
    out_dtype: object = None,
    name: str = "conv2d",
) -> te.Tensor:
    """Data N×C×H×W and weights O×(C/groups)×KH×KW give N×O×H'×W'."""
    require_ranks(name, (data, 4), (weight, 4))
    batch, channels, height, width = data.shape
    outputs, inputs, *kernel = weight.shape
    per_group = _check_groups(name, channels, inputs, outputs, groups)
    window = Window.of(name, kernel, strides, pads, dilations)
    image, dtype = window.padded(data, (2, 3)), result_type(data, out_dtype)
    rc, (ry, rx) = te.reduce_axis(inputs, name="rc"), window.axes()

    def element(n: Expr, o: Expr, y: Expr, x: Expr) -> Any:
        c = rc if groups == 1 else plus(times(o // per_group, inputs), rc)
        pixel = image[n, c, window.index(0, y, ry), window.index(1, x, rx)]
        return te.sum(multiplied(pixel, weight[o, rc, ry, rx], dtype), axis=[rc, ry, rx])

    shape = (batch, outputs, *window.output(name, (height, width)))
    return te.compute(shape, element, name=name)


def conv2d_nhwc(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    groups: int = 1,
    out_dtype: object = None,
    name: str = "conv2d",
) -> te.Tensor:
    """Data N×H×W×C and weights KH×KW×(C/groups)×O give N×H'×W'×O."""
    require_ranks(name, (data, 4), (weight, 4))
    batch, height, width, channels = data.shape
    *kernel, inputs, outputs = weight.shape
    per_group = _check_groups(name, channels, inputs, outputs, groups)
    window = Window.of(name, kernel, strides, pads, dilations)
    image, dtype = window.padded(data, (1, 2)), result_type(data, out_dtype)
    rc, (ry, rx) = te.reduce_axis(inputs, name="rc"), window.axes()

    def element(n: Expr, y: Expr, x: Expr, o: Expr) -> Any:
        c = rc if groups == 1 else plus(times(o // per_group, inputs), rc)
        pixel = image[n, window.index(0, y, ry), window.index(1, x, rx), c]
        return te.sum(multiplied(pixel, weight[ry, rx, rc, o], dtype), axis=[ry, rx, rc])

    shape = (batch, *window.output(name, (height, width)), outputs)
    return te.compute(shape, element, name=name)


def conv2d_blocked(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    out_dtype: object = None,
    name: str = "conv2d",
) -> te.Tensor:
    """Channels in blocks (NCHW16c and kin): data N×(C/b)×H×W×b and weights (O/c)×(C/b)×KH×KW×b×c,
    as `to_blocked` and `pack_conv_weights` lay them out, give N×(O/c)×H'×W'×c."""
    require_ranks(name, (data, 5), (weight, 6))
    batch, channels, height, width, block = data.shape
    outputs, inputs, *kernel, inner, out_block = weight.shape
    require_equal(name, "the numbers of blocks of channels", channels, inputs)
    require_equal(name, "the blocks of channels", block, inner)
    window = Window.of(name, kernel, strides, pads, dilations)
    image, dtype = window.padded(data, (2, 3)), result_type(data, out_dtype)
    ro, ri = te.reduce_axis(inputs, name="ro"), te.reduce_axis(inner, name="ri")
    ry, rx = window.axes()

    def element(n: Expr, o: Expr, y: Expr, x: Expr, oi: Expr) -> Any:
        pixel = image[n, ro, window.index(0, y, ry), window.index(1, x, rx), ri]
        factor = weight[o, ro, ry, rx, ri, oi]
        return te.sum(multiplied(pixel, factor, dtype), axis=[ro, ry, rx, ri])

    shape = (batch, outputs, *window.output(name, (height, width)), out_block)
    return te.compute(shape, element, name=name)


def multiplied(a: Expr, b: Expr, dtype: DType) -> Expr:
    """The product of two elements in the type of the result."""
    return a.astype(dtype) * b.astype(dtype)


def result_type(data: te.Tensor, out_dtype: object) -> DType:
    """The type that is asked for, or that of the data."""
    return DType.of(data.dtype if out_dtype is None else out_dtype)


def require_ranks(name: str, *wanted: tuple[te.Tensor, int]) -> None:
    for tensor, rank in wanted:
        if tensor.ndim != rank:
            raise UserError(f"{name} takes a tensor of rank {rank}", reason=f"got {tensor!r}")


def _check_groups(name: str, channels: Expr, inputs: Expr, outputs: Expr, groups: int) -> int:
    """How many output channels a group has; 0 for a single group, whose size may be symbolic."""
    require_equal(name, "the channels of data and weights", channels, times(inputs, groups))
    if groups == 1:
        return 0
    count = static(outputs, f"the number of output channels of {name}")
    if groups < 1 or count % groups:
        raise UserError(f"{name} cannot make {groups} groups of {known(outputs)} output channels")
    return count // groups
