"""Rows as signed bytes, each with the scale that its own range asks for."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.elementwise import mapped
from tilewright.graph.ir import Array, Value
from tilewright.graph.op import op
from tilewright.graph.reduced import reduce_over
from tilewright.graph.types import TensorType, Type
from tilewright.ir import DType, Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te

_FLOAT32, _INT8 = DType.of("float32"), DType.of("int8")
#: The largest byte that is used: -128 is not, so that the range is the same on both sides of zero.
GREATEST: Final = 127
#: A row whose scale is less is taken for zeros: the inverse must be a number.
LEAST: Final = 1e-30


@op
def quantize_rows(x: Value) -> tuple[Type, ...]:
    """(bytes, scale): x is about bytes * scale, where a scale, 1 in the last place of its shape,
    belongs to each row. A row that is not finite has no scale: it is NaN or infinite."""
    if x.dtype is not _FLOAT32 or not x.ndim:
        raise UserError(f"quantize_rows takes rows of float32, not {x}")
    return TensorType(_INT8, x.shape), TensorType(_FLOAT32, [*x.shape[:-1], const(1)])


@quantize_rows.reference
def quantize_rows_reference(x: Array) -> tuple[Array, ...]:
    scale = np.abs(x).max(axis=-1, keepdims=True, initial=0) * np.float32(1 / GREATEST)
    with np.errstate(all="ignore"):
        factor = np.where(scale < LEAST, np.float32(0), np.float32(1) / scale)
        rounded = np.nan_to_num(np.rint(x * factor.astype(np.float32)))
    return np.clip(rounded, -GREATEST, GREATEST).astype(np.int8), scale


@quantize_rows.compute
def quantize_rows_compute(x: te.Tensor) -> tuple[te.Tensor, ...]:
    greatest = reduce_over(te.max, x, (x.ndim - 1,), True, te.abs, "greatest")

    def scale(g: Expr) -> Expr:
        return g * (1 / GREATEST)

    def element(e: Expr, g: Expr) -> Expr:
        factor = te.select(scale(g) < LEAST, te.const(0.0), te.const(1.0) / scale(g))
        return te.cast(te.cast(te.round(e * factor), "int32"), _INT8)

    return mapped(element, x, greatest, name="quantized"), mapped(scale, greatest, name="scale")
