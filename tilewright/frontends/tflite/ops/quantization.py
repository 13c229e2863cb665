"""Conversions between element types, quantized or not."""

from __future__ import annotations

from tilewright.frontends.tflite.fixed_point import quantized, real, rescaled
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value


@converts("CAST")
def cast(n: Node) -> Value:
    x = n[0]
    if n.tensor(0).type.startswith("complex"):
        # The real part.
        x = n.builder.index(x, (..., 0))
    return n.builder.cast(x, dtype=n.out_dtype())


@converts("QUANTIZE")
def quantize(n: Node) -> Value:
    if n[0].dtype.is_float:
        return quantized(n, n[0])
    return rescaled(n, n[0], n.quantization(0), n.out_dtype(), n.out_quantization())


@converts("DEQUANTIZE")
def dequantize(n: Node) -> Value:
    if n[0].dtype.is_float:
        return n.builder.cast(n[0], dtype=n.out_dtype())
    return real(n, 0)


@converts("DENSIFY")
def densify(n: Node) -> Value:
    """Sparse constants are expanded when they are read."""
    return n[0]


@converts("BITCAST")
def bitcast(n: Node) -> Value:
    return n.builder.bitcast(n[0], dtype=n.out_dtype())
