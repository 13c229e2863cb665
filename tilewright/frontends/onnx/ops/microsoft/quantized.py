"""Quantized operators of com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.frontends.common.images import channels_first, channels_last
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.pooling import average_pool_of
from tilewright.frontends.onnx.ops.quantization import (
    dequantize,
    qlinear_conv_of,
    quantize,
)
from tilewright.frontends.onnx.table import TABLE, converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

_MS: Final = "com.microsoft"
TABLE.add("QuantizeLinear", quantize, domain=_MS)
TABLE.add("DequantizeLinear", dequantize, domain=_MS)


def _real(n: Node, index: int) -> Value:
    """A quantized operand, dequantized by the scale and zero point after it."""
    return n.builder.dequantize(n[index], n[index + 1], n.get(index + 2))


def _stored(n: Node, result: Value, index: int, like: Value) -> Value:
    """A result, quantized by the scale and zero point at `index`."""
    zero = n.get(index + 1)
    dtype = like.dtype if zero is None else None
    return n.builder.quantize(result, n[index], zero, dtype=dtype)


# ---- elementwise --------------------------------------------------------------------------------


@converts("QLinearAdd", "QLinearMul", domain=_MS)
def qlinear_binary(n: Node) -> Value:
    op = "add" if n.op == "QLinearAdd" else "mul"
    return _stored(n, n.builder.emit(op, _real(n, 0), _real(n, 3)), 6, n[0])


@converts("QLinearSigmoid", domain=_MS)
def qlinear_sigmoid(n: Node) -> Value:
    return _stored(n, n.builder.sigmoid(_real(n, 0)), 3, n[0])


@converts("QLinearLeakyRelu", domain=_MS)
def qlinear_leaky_relu(n: Node) -> Value:
    result = n.builder.leaky_relu(_real(n, 0), alpha=n.real("alpha", 0.01))
    return _stored(n, result, 3, n[0])


@converts("QLinearSoftmax", domain=_MS)
def qlinear_softmax(n: Node) -> Value:
    b, x, axis = n.builder, _real(n, 0), n.integer("axis", -1)
    if n.integer("opset", 13) >= 13 or axis % x.ndim == x.ndim - 1:
        return _stored(n, b.softmax(x, axis=axis), 3, n[0])
    flat = b.softmax(b.flatten(x, axis=axis % x.ndim), axis=1)
    return _stored(n, b.reshape(flat, shape=x.shape), 3, n[0])


@converts("QLinearReduceMean", domain=_MS)
def qlinear_reduce_mean(n: Node) -> Value:
    axes = n.integers("axes", None)
    result = n.builder.mean(_real(n, 0), axes=axes, keepdims=n.flag("keepdims", True))
    return _stored(n, result, 3, n[0])


@converts("QLinearWhere", domain=_MS)
def qlinear_where(n: Node) -> Value:
    return _stored(n, n.builder.where(n[0], _real(n, 1), _real(n, 4)), 7, n[1])


@converts("QLinearConcat", domain=_MS)
def qlinear_concat(n: Node) -> Value:
    """(scale, zero point of the result, then tensor, scale, zero point of each part)."""
    if len(n.inputs) < 5 or (len(n.inputs) - 2) % 3:
        raise UserError(f"{len(n.inputs)} operands do not make quantized tensors")
    parts = [_real(n, k) for k in range(2, len(n.inputs), 3)]
    return _stored(n, n.builder.concat(*parts, axis=n.integer("axis")), 0, n[2])


# ---- pooling ------------------------------------------------------------------------------------

_Pool = Callable[[Node, Value], Value]


def _pooled(n: Node, pool: _Pool) -> Value:
    is_last = n.flag("channels_last")
    x = _real(n, 0)
    result = pool(n, channels_first(n.builder, x) if is_last else x)
    return _stored(n, channels_last(n.builder, result) if is_last else result, 3, n[0])


@converts("QLinearAveragePool", domain=_MS)
def qlinear_average_pool(n: Node) -> Value:
    return _pooled(n, average_pool_of)


@converts("QLinearGlobalAveragePool", domain=_MS)
def qlinear_global_average_pool(n: Node) -> Value:
    return _pooled(n, lambda n, x: n.builder.global_avg_pool(x))


# ---- products -----------------------------------------------------------------------------------


@converts("QLinearConv", domain=_MS)
def qlinear_conv(n: Node) -> Value:
    if not n.flag("channels_last"):
        return qlinear_conv_of(n, n[0])
    return channels_last(n.builder, qlinear_conv_of(n, channels_first(n.builder, n[0])))


@converts("MatMulInteger16", domain=_MS)
def matmul_integer16(n: Node) -> Value:
    return n.builder.matmul_integer(n[0], n[1])


@converts("MatMulIntegerToFloat", domain=_MS)
def matmul_integer_to_float(n: Node) -> Value:
    """(a, b, a scale, b scale, a zero?, b zero?, bias?)."""
    product = n.builder.matmul_integer(n[0], n[1], n.get(4), n.get(5))
    return _scaled(n, product, [n[2], n[3]], n.get(6))


@converts("DynamicQuantizeMatMul", domain=_MS)
def dynamic_quantize_matmul(n: Node) -> Value:
    """(a in float, b, b scale, b zero?, bias?)."""
    stored, scale, zero = n.builder.dynamic_quantize(n[0])
    product = n.builder.matmul_integer(stored, n[1], zero, n.get(3))
    return _scaled(n, product, [scale, n[2]], n.get(4))


def _scaled(n: Node, product: Value, scales: Sequence[Value], bias: Value | None) -> Value:
    """Integers times their scales, plus a bias."""
    b = n.builder
    factor = b.mul(*scales)
    result = b.mul(b.cast(product, dtype=factor.dtype), factor)
    return result if bias is None else b.add(result, bias)


@converts("QGemm", domain=_MS)
def qgemm(n: Node) -> Value:
    """(a, scale, zero, b, scale, zero, bias in int32?, y scale?, y zero?)."""
    b = n.builder
    a_zero, b_zero = n.get(2), n.get(5)
    left, right = n[0], n[3]
    left = b.transpose(left, axes=[1, 0]) if n.flag("transA") else left
    right = b.transpose(right, axes=[1, 0]) if n.flag("transB") else right
    total = b.matmul_integer(left, right, a_zero, b_zero)
    total = total if n.get(6) is None else b.add(total, n[6])
    factor = b.mul(b.mul(n[1], n[4]), n.scalar(n.real("alpha", 1.0), n[1]))
    result = b.mul(b.cast(total, dtype=factor.dtype), factor)
    return result if n.get(7) is None else _stored(n, result, 7, n[0])


@converts("MatMulNBits", domain=_MS)
def matmul_nbits(n: Node) -> Value:
    """(a, packed b, scales, zero points?, group index?, bias?)."""
    if n.get(4) is not None:
        raise UserError("MatMulNBits with reordered columns", remedy="export without g_idx")
    b, rows = n.builder, n.integer("N")
    block, depth = n.integer("block_size"), n.integer("K")
    if block < 1 or depth < 1 or rows < 1:
        raise UserError(f"MatMulNBits of {rows} × {depth} in blocks of {block}")
    blocks = -(-depth // block)
    zeros = n.get(3)
    if zeros is not None and zeros.ndim == 1:
        zeros = b.reshape(zeros, shape=[rows, -1])
    return b.matmul_nbits(
        n[0],
        n[1],
        b.reshape(n[2], shape=[rows, blocks]),
        zeros,
        n.get(5),
        depth=depth,
        bits=n.integer("bits", 4),
        block=block,
    )
