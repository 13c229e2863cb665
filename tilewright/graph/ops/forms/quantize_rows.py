"""Rows as signed bytes, each with a scale and a zero point that fit its range."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import mapped
from tilewright.graph.ops.quantized.quantize import to_integer
from tilewright.graph.ops.reduce.reduced import reduce_over
from tilewright.ir import DType, Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te

_FLOAT32, _INT8, _INT32 = (DType.of(t) for t in ("float32", "int8", "int32"))
_LOWEST, _STEPS = -128.0, 255.0
#: Rows with a smaller scale are treated as zeros: the inverse must be finite.
LEAST: Final = 1e-30


@op
def quantize_rows(x: Value) -> tuple[Type, ...]:
    """(bytes, scale, zero point): x is about (bytes - zero point) * scale, zeros exactly. There is
    one of both for each row, 1 in the last place of their shape; zero points, which are bytes too,
    come as int32, in which they are used. A row that is not finite has no scale that is."""
    if x.dtype is not _FLOAT32 or not x.ndim:
        raise UserError(f"quantize_rows takes rows of float32, not {x}")
    single = [*x.shape[:-1], const(1)]
    return TensorType(_INT8, x.shape), TensorType(_FLOAT32, single), TensorType(_INT32, single)


@quantize_rows.reference
def quantize_rows_reference(x: Array) -> tuple[Array, ...]:
    low = x.min(axis=-1, keepdims=True, initial=0)
    high = x.max(axis=-1, keepdims=True, initial=0)
    with np.errstate(all="ignore"):
        scale = (high - low) * np.float32(1 / _STEPS)
        factor = np.where(scale < LEAST, np.float32(0), np.float32(1) / scale).astype(np.float32)
        zero = _to_bytes(np.float32(_LOWEST) - low * factor)
        stored = _to_bytes(np.rint(x * factor) + zero.astype(np.float32))
    return stored, scale, zero.astype(np.int32)


def _to_bytes(x: Array) -> Array:
    return np.clip(np.nan_to_num(np.rint(x)), -128, 127).astype(np.int8)


@quantize_rows.compute
def quantize_rows_compute(x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = (x.ndim - 1,)
    low = reduce_over(te.min, x, axis, name="least")
    high = reduce_over(te.max, x, axis, name="greatest")

    def scale(a: Expr, b: Expr) -> Expr:
        return (te.maximum(b, 0.0) - te.minimum(a, 0.0)) * (1 / _STEPS)

    def factor(a: Expr, b: Expr) -> Expr:
        return te.select(scale(a, b) < LEAST, te.const(0.0), te.const(1.0) / scale(a, b))

    def zero(a: Expr, b: Expr) -> Expr:
        place = te.round(_LOWEST - te.minimum(a, 0.0) * factor(a, b))
        return te.cast(te.clip(place, _INT8.min_value, _INT8.max_value), _INT32)

    def element(e: Expr, a: Expr, b: Expr) -> Expr:
        return to_integer(e * factor(a, b), zero(a, b), _INT8)

    return (
        mapped(element, x, low, high, name="quantized"),
        mapped(scale, low, high, name="scale"),
        mapped(zero, low, high, name="zero"),
    )
