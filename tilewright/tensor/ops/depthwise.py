"""Depthwise convolutions: every channel by itself.

The arguments are those of `convolution`.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.convolution import multiplied, require_ranks, result_type
from tilewright.tensor.ops.extents import is_one, known, require_equal, static, times
from tilewright.tensor.ops.window import Pair, Window


def depthwise_conv2d_nchw(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    out_dtype: object = None,
    name: str = "depthwise_conv2d",
) -> te.Tensor:
    """Data N×C×H×W and weights (C·m)×1×KH×KW give N×(C·m)×H'×W': m outputs for every channel."""
    require_ranks(name, (data, 4), (weight, 4))
    batch, channels, height, width = data.shape
    outputs, one, *kernel = weight.shape
    require_equal(name, "the second extent of the weights and 1", one, 1)
    multiplier = _multiplier(name, channels, outputs)
    window = Window.of(name, kernel, strides, pads, dilations)
    image, dtype = window.padded(data, (2, 3)), result_type(data, out_dtype)
    ry, rx = window.axes()

    def element(n: Expr, c: Expr, y: Expr, x: Expr) -> Any:
        channel = c if multiplier == 1 else c // multiplier
        pixel = image[n, channel, window.index(0, y, ry), window.index(1, x, rx)]
        return te.sum(multiplied(pixel, weight[c, 0, ry, rx], dtype), axis=[ry, rx])

    shape = (batch, outputs, *window.output(name, (height, width)))
    return te.compute(shape, element, name=name)


def depthwise_conv2d_nhwc(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    out_dtype: object = None,
    name: str = "depthwise_conv2d",
) -> te.Tensor:
    """Data N×H×W×C and weights KH×KW×C×m give N×H'×W'×(C·m)."""
    require_ranks(name, (data, 4), (weight, 4))
    batch, height, width, channels = data.shape
    *kernel, inputs, multiplier = weight.shape
    require_equal(name, "the channels of data and weights", channels, inputs)
    window = Window.of(name, kernel, strides, pads, dilations)
    image, dtype = window.padded(data, (1, 2)), result_type(data, out_dtype)
    ry, rx = window.axes()

    def element(n: Expr, y: Expr, x: Expr, c: Expr) -> Any:
        single = is_one(multiplier)
        channel, copy = (c, 0) if single else (c // multiplier, c % multiplier)
        pixel = image[n, window.index(0, y, ry), window.index(1, x, rx), channel]
        return te.sum(multiplied(pixel, weight[ry, rx, channel, copy], dtype), axis=[ry, rx])

    shape = (batch, *window.output(name, (height, width)), times(channels, multiplier))
    return te.compute(shape, element, name=name)


def depthwise_conv2d_blocked(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    out_dtype: object = None,
    name: str = "depthwise_conv2d",
) -> te.Tensor:
    """Data N×(C/b)×H×W×b and weights (C/b)×KH×KW×b give N×(C/b)×H'×W'×b."""
    require_ranks(name, (data, 5), (weight, 4))
    batch, channels, height, width, block = data.shape
    inputs, *kernel, inner = weight.shape
    require_equal(name, "the numbers of blocks of channels", channels, inputs)
    require_equal(name, "the blocks of channels", block, inner)
    window = Window.of(name, kernel, strides, pads, dilations)
    image, dtype = window.padded(data, (2, 3)), result_type(data, out_dtype)
    ry, rx = window.axes()

    def element(n: Expr, c: Expr, y: Expr, x: Expr, ci: Expr) -> Any:
        pixel = image[n, c, window.index(0, y, ry), window.index(1, x, rx), ci]
        return te.sum(multiplied(pixel, weight[c, ry, rx, ci], dtype), axis=[ry, rx])

    shape = (batch, channels, *window.output(name, (height, width)), block)
    return te.compute(shape, element, name=name)


def _multiplier(name: str, channels: Expr, outputs: Expr) -> int:
    if channels is outputs:
        return 1
    given = static(channels, f"the number of channels of {name}")
    made = static(outputs, f"the number of output channels of {name}")
    if not given or made % given:
        raise UserError(f"{name} cannot make {known(outputs)} channels of {known(channels)}")
    return made // given
