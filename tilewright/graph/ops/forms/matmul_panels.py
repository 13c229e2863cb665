"""Products by weights of a few bits, in panels of outputs that are read sequentially.

The rows of `matmul_nbits` are interleaved here for many outputs: vectors of bytes hold the weights
of adjacent outputs, which are unpacked in registers, right before the multiplication.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal, require_same_shape
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

_UINT8 = DType.of("uint8")
#: Outputs in a panel: a cache line of bytes.
PANEL: Final = 64


@op
def matmul_panels(
    x: Value,
    weight: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    bits: int = 4,
    block: int = 32,
) -> Type:
    """x @ w for x: …×K, as panels×…×64, and w stored in panels of outputs: bytes panels×(K · bits
    / 8)×64, scales and zero points panels×(K / block)×64.

    The bytes of a block hold its first weights in their lowest bits, then those that come after
    these. w = (stored - zero point) * scale; the zero point is 2 ** (bits - 1) unless given.
    """
    require_kind("float", x, scales)
    require_same_dtype(x, scales, *([] if zero_points is None else [zero_points]))
    if weight.dtype is not _UINT8 or bits not in (2, 4, 8) or block % (8 // bits):
        raise UserError(f"{weight} are no weights of {bits} bits in blocks of {block}")
    panels, rows, _ = weight.tensor.static_shape
    depth = rows * 8 // bits
    require_equal(x.shape[-1], depth, "the rows of x and of the weights")
    require_same_shape(scales.shape, [panels, depth // block, PANEL], "the scales and the panels")
    require_same_shape(weight.shape, [panels, rows, PANEL], "the weights and the panels")
    if zero_points is not None:
        require_same_shape(zero_points.shape, scales.shape, "the zero points and the scales")
    return TensorType(x.dtype, [panels, *x.shape[:-1], PANEL])


def in_panels(stored: Array, bits: int) -> Array:
    """Numbers of a few bits N×blocks×block as the bytes of panels."""
    blocks, block = stored.shape[1:]
    parts = stored.reshape(-1, blocks, 8 // bits, block * bits // 8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    packed = np.bitwise_or.reduce(parts << shifts, axis=2)
    return side_by_side(packed.reshape(len(stored), -1))


def side_by_side(rows: Array) -> Array:
    """Rows N×M as panels×M×64, padded with zeros."""
    panels = -(-len(rows) // PANEL)
    full = np.zeros((panels * PANEL, rows.shape[1]), rows.dtype)
    full[: len(rows)] = rows
    return np.ascontiguousarray(full.reshape(panels, PANEL, -1).transpose(0, 2, 1))


@matmul_panels.reference
def matmul_panels_reference(
    x: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None,
    *,
    bits: int,
    block: int,
) -> Array:
    real = _unpacked(weight, scales, zero_points, bits, block)
    panels, depth = real.shape[:2]
    columns = real.transpose(1, 0, 2).reshape(depth, -1)
    total = (x.astype(np.float64) @ columns).astype(x.dtype)
    return np.moveaxis(total.reshape(*x.shape[:-1], panels, PANEL), -2, 0)


def _unpacked(
    weight: Array, scales: Array, zero_points: Array | None, bits: int, block: int
) -> Array:
    """Panels of weights as real numbers, panels×K×64."""
    panels, blocks = scales.shape[:2]
    parts = weight.reshape(panels, blocks, 1, -1, PANEL)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(-1, 1, 1)
    stored = ((parts >> shifts) & np.uint8(2**bits - 1)).reshape(panels, blocks, block, PANEL)
    zeros = 2.0 ** (bits - 1) if zero_points is None else zero_points[:, :, None].astype(np.float64)
    real = (stored - zeros) * scales[:, :, None].astype(np.float64)
    return real.reshape(panels, -1, PANEL)


@matmul_panels.compute
def matmul_panels_compute(
    x: te.Tensor,
    weight: te.Tensor,
    scales: te.Tensor,
    zero_points: te.Tensor | None,
    *,
    bits: int,
    block: int,
) -> te.Tensor:
    work, count = accumulator(x.dtype), 8 // bits
    per_block = block // count
    g = te.reduce_axis(scales.shape[1], name="g")
    h = te.reduce_axis(per_block, name="h")

    def element(*i: Any) -> Any:
        panel, *row, lane = i
        byte = weight[panel, g * per_block + h, lane]
        zero: Any = 2.0 ** (bits - 1)
        if zero_points is not None:
            zero = te.cast(zero_points[panel, g, lane], work)

        def term(part: int) -> tuple[Expr, Expr]:
            stored = byte >> (part * bits) if part else byte
            # The last part has no bits above it when it is shifted down.
            stored = stored if part == count - 1 else stored & (2**bits - 1)
            factor = te.cast(x[(*row, g * block + part * per_block + h)], work)
            return factor, te.cast(stored, work) - zero

        factor, value = term(0)
        total = factor * value
        for part in range(1, count):
            total = te.fma(*term(part), total)
        return te.sum(total * te.cast(scales[panel, g, lane], work), axis=[g, h])

    total = te.compute([weight.shape[0], *x.shape[:-1], PANEL], element, name="matmul_panels")
    if work is x.dtype:
        return total
    return te.compute(total.shape, lambda *i: te.cast(total[i], x.dtype), name="panels_result")


# ---- weights alone ------------------------------------------------------------------------------


@op
def unpack_panels(
    weight: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    bits: int = 4,
    block: int = 32,
) -> Type:
    """The weights of `matmul_panels` as they are multiplied, panels×K×64."""
    require_kind("float", scales)
    panels, rows, _ = weight.tensor.static_shape
    depth = rows * 8 // bits
    require_same_shape(scales.shape, [panels, depth // block, PANEL], "the scales and the panels")
    return TensorType(scales.dtype, [panels, depth, PANEL])


@unpack_panels.reference
def unpack_panels_reference(
    weight: Array, scales: Array, zero_points: Array | None, *, bits: int, block: int
) -> Array:
    return _unpacked(weight, scales, zero_points, bits, block).astype(scales.dtype)


@unpack_panels.compute
def unpack_panels_compute(
    weight: te.Tensor,
    scales: te.Tensor,
    zero_points: te.Tensor | None,
    *,
    bits: int,
    block: int,
) -> te.Tensor:
    work, count = accumulator(scales.dtype), 8 // bits
    per_block = block // count

    def element(panel: Expr, k: Expr, lane: Expr) -> Expr:
        g, part = te.floordiv(k, block), te.floordiv(te.floormod(k, block), per_block)
        byte = weight[panel, g * per_block + te.floormod(k, per_block), lane]
        stored = (byte >> te.cast(part * bits, _UINT8)) & (2**bits - 1)
        zero: Any = 2.0 ** (bits - 1)
        if zero_points is not None:
            zero = te.cast(zero_points[panel, g, lane], work)
        value = (te.cast(stored, work) - zero) * te.cast(scales[panel, g, lane], work)
        return te.cast(value, scales.dtype)

    return te.compute([scales.shape[0], weight.shape[1] * count, PANEL], element, name="unpacked")
