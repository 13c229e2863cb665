"""Convolutions and dense layers."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.prototxt import Message
from tilewright.frontends.caffe.table import converts
from tilewright.frontends.caffe.windows import read_window
from tilewright.frontends.common.images import SymmetricWindow
from tilewright.graph import Array, Value, product
from tilewright.support.errors import UserError


@converts("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def convolution(n: Layer) -> list[Value]:
    param = n.param("convolution_param")
    return [_convolved(n, param, x) for x in _all(n)]


def _convolved(n: Layer, param: Message, x: Value) -> Value:
    outputs, channels, groups = _sizes(n, param, x)
    window = read_window(param, x)
    weight = n.blob(0, outputs, channels // groups, *window.kernel)
    return n.builder.conv(x, weight, _bias(n, param, outputs), **_options(window, groups))


@converts("Deconvolution")
def deconvolution(n: Layer) -> list[Value]:
    param = n.param("convolution_param")
    return [_spread(n, param, x) for x in _all(n)]


def _spread(n: Layer, param: Message, x: Value) -> Value:
    outputs, channels, groups = _sizes(n, param, x)
    window = read_window(param, x)
    weight = n.blob(0, channels, outputs // groups, *window.kernel)
    return n.builder.conv_transpose(x, weight, _bias(n, param, outputs), **_options(window, groups))


def _options(window: SymmetricWindow, groups: int) -> dict[str, Any]:
    return {
        "strides": window.strides,
        "pads": window.both_pads,
        "dilations": window.dilations,
        "groups": groups,
    }


def _all(n: Layer) -> list[Value]:
    """All operands: a layer may apply to several separately."""
    return [n[k] for k in range(max(1, len(n.inputs)))]


def _sizes(n: Layer, param: Message, x: Value) -> tuple[int, int, int]:
    """Filters, channels and groups, which divide both."""
    if param.integer("axis", 1) != 1:
        raise UserError("a convolution whose channels are not on axis 1 is not supported")
    channels = n.extent(x, 1)
    outputs = param.integer("num_output", 0)
    depthwise = n.type in ("ConvolutionDepthwise", "DepthwiseConvolution")
    groups = param.integer("group", channels if depthwise else 1)
    if outputs < 1 or groups < 1 or outputs % groups or channels % groups:
        raise UserError(f"{groups} groups of {channels} channels and {outputs} outputs")
    return outputs, channels, groups


def _bias(n: Layer, param: Message, outputs: int) -> Array | None:
    return n.blob(1, outputs) if param.flag("bias_term", True) else None


@converts("InnerProduct")
def inner_product(n: Layer) -> Value:
    param, b, x = n.param("inner_product_param"), n.builder, n[0]
    axis = n.axis(param.integer("axis", 1), x.ndim)
    outputs, lead = param.integer("num_output", 0), list(x.shape[:axis])
    inputs = 1
    for k in range(axis, x.ndim):
        inputs *= n.extent(x, k)
    rows = b.reshape(x, shape=[product(lead), inputs])
    if param.flag("transpose"):
        made = b.matmul(rows, n.blob(0, inputs, outputs))
    else:
        made = b.matmul(rows, n.blob(0, outputs, inputs), transpose_b=True)
    bias = _bias(n, param, outputs)
    made = made if bias is None else b.add(made, bias)
    return b.reshape(made, shape=[*lead, outputs])


@converts("Embed")
def embed(n: Layer) -> Value:
    param, b = n.param("embed_param"), n.builder
    rows, outputs = param.integer("input_dim", 0), param.integer("num_output", 0)
    table = n.blob(0, rows, outputs)
    made = b.gather(b.constant(table), b.cast(n[0], dtype="int64"), axis=0)
    bias = _bias(n, param, outputs)
    return made if bias is None else b.add(made, bias)
