"""Quantized numbers and products of them."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.frontends.onnx.windows import kernel_of_weight, read_window
from tilewright.graph import Value
from tilewright.ir import DType


@converts("QuantizeLinear")
def quantize(n: Node) -> Value:
    return n.builder.quantize(
        n[0],
        n[1],
        _zero_point(n),
        dtype=_dtype(n, "output_dtype"),
        axis=n.integer("axis", 1),
        block=n.integer("block_size", 0),
        saturate=n.flag("saturate", True),
        precision=_dtype(n, "precision"),
    )


@converts("DequantizeLinear")
def dequantize(n: Node) -> Value:
    return n.builder.dequantize(
        n[0],
        n[1],
        _zero_point(n),
        dtype=_dtype(n, "output_dtype"),
        axis=n.integer("axis", 1),
        block=n.integer("block_size", 0),
    )


def _zero_point(n: Node) -> Value | None:
    """The zero point; a single one may be a vector where the scale is not, or vice versa."""
    scale, zero = n[1], n.get(2)
    if zero is None or zero.ndim == scale.ndim or zero.tensor.size != 1:
        return zero
    return n.builder.reshape(zero, shape=scale.shape)


def _dtype(n: Node, name: str) -> DType | None:
    """An element type, for which 0 means none."""
    return n.dtype(name) if n.integer(name, 0) else None


@converts("DynamicQuantizeLinear")
def dynamic_quantize(n: Node) -> list[Value]:
    return list(n.builder.dynamic_quantize(n[0]))


@converts("MatMulInteger")
def matmul_integer(n: Node) -> Value:
    return n.builder.matmul_integer(n[0], n[1], n.get(2), n.get(3))


@converts("QLinearMatMul")
def qlinear_matmul(n: Node) -> Value:
    return n.builder.qlinear_matmul(*n.all)


@converts("ConvInteger")
def conv_integer(n: Node) -> Value:
    return n.builder.conv_integer(n[0], n[1], n.get(2), n.get(3), **_window(n, n[0], n[1]))


@converts("QLinearConv")
def qlinear_conv(n: Node) -> Value:
    return qlinear_conv_of(n, n[0])


def qlinear_conv_of(n: Node, x: Value) -> Value:
    """The quantized convolution that a node describes, of `x`."""
    rest = [n.get(k) for k in range(1, 9)]
    # Weights are nearly always stored without a zero point, and need no correction.
    if rest[4] is not None and rest[4].constant is not None and not rest[4].constant.any():
        rest[4] = None
    return n.builder.qlinear_conv(x, *rest, **_window(n, x, n[3]))


def _window(n: Node, x: Value, weight: Value) -> dict[str, Any]:
    window = read_window(n, x, kernel_of_weight(n, weight))
    return {
        "strides": window.strides,
        "pads": window.pads,
        "dilations": window.dilations,
        "groups": n.integer("group", 1),
    }
