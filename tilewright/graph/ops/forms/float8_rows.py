"""Rows as floats of eight bits (e4m3), each with a scale that fits its greatest magnitude."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.cast import converted
from tilewright.graph.ops.elementwise.elementwise import mapped
from tilewright.graph.ops.forms.quantize_rows import LEAST
from tilewright.graph.ops.reduce.reduced import reduce_over
from tilewright.ir import DType, Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te

_FLOAT32 = DType.of("float32")
FLOAT8: Final = DType.of("float8_e4m3fn")
_GREATEST: Final = FLOAT8.max_value


@op
def float8_rows(x: Value) -> tuple[Type, ...]:
    """(rows, scale): x is about rows * scale, zeros exactly. There is one scale for each row, 1 in
    the last place of its shape. A row that is not finite has no scale that is."""
    if x.dtype is not _FLOAT32 or not x.ndim:
        raise UserError(f"float8_rows takes rows of float32, not {x}")
    return TensorType(FLOAT8, x.shape), TensorType(_FLOAT32, [*x.shape[:-1], const(1)])


@float8_rows.reference
def float8_rows_reference(x: Array) -> tuple[Array, ...]:
    greatest = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    with np.errstate(all="ignore"):
        factor = np.float32(_GREATEST) / np.maximum(greatest, np.float32(LEAST))
        rows = np.clip(x * factor, -_GREATEST, _GREATEST).astype(FLOAT8.numpy)
    return rows, greatest * np.float32(1 / _GREATEST)


@float8_rows.compute
def float8_rows_compute(x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = (x.ndim - 1,)
    low = reduce_over(te.min, x, axis, name="least")
    high = reduce_over(te.max, x, axis, name="greatest")

    def greatest(a: Expr, b: Expr) -> Expr:
        return te.maximum(te.maximum(b, 0.0), -te.minimum(a, 0.0))

    def element(e: Expr, a: Expr, b: Expr) -> Expr:
        factor = te.const(_GREATEST, _FLOAT32) / te.maximum(greatest(a, b), LEAST)
        return converted(e * factor, FLOAT8, saturate=True)

    return (
        mapped(element, x, low, high, name="rows"),
        mapped(lambda a, b: greatest(a, b) * (1 / _GREATEST), low, high, name="scale"),
    )
