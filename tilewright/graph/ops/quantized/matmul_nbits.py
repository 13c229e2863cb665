"""Products by weights of a few bits, quantized in blocks along each row and packed into bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.neural.matmul import product
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal, require_same_shape
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

_UINT8 = DType.of("uint8")


@op
def matmul_nbits(
    x: Value,
    weight: Value,
    scales: Value,
    zero_points: Value | None = None,
    bias: Value | None = None,
    *,
    depth: int,
    bits: int = 4,
    block: int = 32,
) -> Type:
    """x @ w.T + bias for w: N×depth, stored as N×blocks×(block · bits / 8) bytes, the lowest bits
    first.

    w = (stored - zero point) * scale, with a scale for every block (N×blocks); zero points are
    packed as the weights are (N×bytes) or are numbers (N×blocks), 2 ** (bits - 1) unless given.
    """
    require_kind("float", x, scales)
    require_same_dtype(x, scales, *([] if bias is None else [bias]))
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8:
        raise UserError(f"weights of {bits} bits in blocks of {block}", remedy="use 2, 4 or 8 bits")
    if weight.ndim != 3 or weight.dtype is not _UINT8 or scales.ndim != 2:
        raise UserError(f"{weight} and {scales} are not packed weights and their scales")
    if not x.ndim:
        raise UserError(f"{x} has no rows")
    require_equal(x.shape[-1], depth, "the rows of x and of the weights")
    rows, blocks = weight.shape[0], -(-depth // block)
    stored = [rows, blocks, block * bits // 8]
    require_same_shape(weight.shape, stored, "the weights and N×blocks×bytes")
    require_same_shape(scales.shape, [rows, blocks], "the scales and N×blocks")
    if zero_points is not None:
        width = -(-blocks * bits // 8) if zero_points.dtype is _UINT8 else blocks
        require_same_shape(zero_points.shape, [rows, width], "the zero points and N×blocks")
    if bias is not None:
        require_same_shape(bias.shape, [rows], "the bias and the rows of the weights")
    return TensorType(x.dtype, [*x.shape[:-1], weight.shape[0]])


@matmul_nbits.reference
def matmul_nbits_reference(
    x: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None,
    bias: Array | None,
    *,
    depth: int,
    bits: int,
    block: int,
) -> Array:
    rows, blocks = weight.shape[:2]
    stored = unpacked_bits(weight, bits)[..., :block].astype(np.float64)
    zeros = np.full((rows, blocks), 2.0 ** (bits - 1))
    if zero_points is not None:
        packed = zero_points.dtype == np.uint8
        zeros = (unpacked_bits(zero_points, bits)[:, :blocks] if packed else zero_points).astype(
            "f8"
        )
    real = (stored - zeros[..., None]) * scales.astype(np.float64)[..., None]
    total = x.astype(np.float64) @ real.reshape(rows, -1)[:, :depth].T
    return (total if bias is None else total + bias).astype(x.dtype)


def unpacked_bits(stored: Array, bits: int) -> Array:
    """The numbers in bytes, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (stored[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*stored.shape[:-1], -1)


def packed_bits(numbers: Array, bits: int) -> Array:
    """Numbers of a few bits along the last axis as bytes, the first in the lowest bits."""
    count = 8 // bits
    parts = numbers.reshape(*numbers.shape[:-1], -1, count).astype(np.uint8)
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=-1)


@matmul_nbits.compute
def matmul_nbits_compute(
    x: te.Tensor,
    weight: te.Tensor,
    scales: te.Tensor,
    zero_points: te.Tensor | None,
    bias: te.Tensor | None,
    *,
    depth: int,
    bits: int,
    block: int,
) -> te.Tensor:
    work = accumulator(x.dtype)

    def unpacked(*i: Any, source: te.Tensor) -> Expr:
        """Number i[-1] of those packed along the last axis."""
        per_byte = 8 // bits
        byte = source[(*i[:-1], te.floordiv(i[-1], per_byte))]
        shift = te.cast(te.floormod(i[-1], per_byte) * bits, _UINT8)
        return (byte >> shift) & (2**bits - 1)

    def zero(n: Expr, g: Expr) -> Expr:
        if zero_points is None:
            return te.const(2.0 ** (bits - 1), work)
        if zero_points.dtype is _UINT8:
            return te.cast(unpacked(n, g, source=zero_points), work)
        return te.cast(zero_points[n, g], work)

    def element(n: Expr, k: Expr) -> Expr:
        g = te.floordiv(k, block)
        stored = te.cast(unpacked(n, g, te.floormod(k, block), source=weight), work)
        return (stored - zero(n, g)) * te.cast(scales[n, g], work)

    real = te.compute((weight.shape[0], depth), element, name="weights")
    total = product(x, real, transpose_b=True, dtype=work, name="matmul_nbits")
    if bias is None and work is x.dtype:
        return total

    def result(*i: Expr) -> Expr:
        value: Expr = total[i]
        value = value if bias is None else value + te.cast(bias[i[-1]], work)
        return te.cast(value, x.dtype)

    return te.compute(total.shape, result, name="matmul_nbits_result")
