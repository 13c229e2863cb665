"""Quantized numbers, and products of them."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.onnx.element_types import onnx_number
from tilewright.frontends.onnx.writing.table import operand, writes
from tilewright.frontends.onnx.writing.writer import Writer, static_ints
from tilewright.graph import Call

_MICROSOFT = "com.microsoft"


@writes("quantize")
def quantize(w: Writer, call: Call, outputs: list[str]) -> None:
    dtype = call.attrs["dtype"]
    kind = None if dtype is None or call.args[2] is not None else onnx_number(dtype)
    saturate = None if call.attrs["saturate"] else 0
    more = {"saturate": saturate, "output_dtype": kind}
    w.node("QuantizeLinear", w.arguments(call), outputs, **_places(call), **more)


@writes("dequantize")
def dequantize(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("DequantizeLinear", w.arguments(call), outputs, **_places(call))


def _places(call: Call) -> dict[str, Any]:
    scale = operand(call, 1)
    axis = call.attrs["axis"] if scale.ndim else None
    return {"axis": axis, "block_size": call.attrs["block"] or None}


@writes("dynamic_quantize")
def dynamic_quantize(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("DynamicQuantizeLinear", w.arguments(call), outputs)


@writes("matmul_integer")
def matmul_integer(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("MatMulInteger", w.arguments(call), outputs)


@writes("conv_integer")
def conv_integer(w: Writer, call: Call, outputs: list[str]) -> None:
    window = {name: static_ints(call, name) for name in ("strides", "pads", "dilations")}
    w.node("ConvInteger", w.arguments(call), outputs, **window, group=call.attrs["groups"])


@writes("matmul_nbits")
def matmul_nbits(w: Writer, call: Call, outputs: list[str]) -> None:
    x, weight, scales, zeros, bias = w.arguments(call)
    sizes = {"K": call.attrs["depth"], "N": operand(call, 1).tensor.static_shape[0]}
    packing = {"bits": call.attrs["bits"], "block_size": call.attrs["block"]}
    names = [x, weight, scales, zeros, "", bias]
    w.node("MatMulNBits", names, outputs, domain=_MICROSOFT, **sizes, **packing)
