"""Elements rounded to a narrower type of floats, where finite numbers stay finite."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def narrowed(x: Value, *, dtype: DType) -> Type:
    """Every element rounded to `dtype`; what is finite and too large becomes its greatest number,
    infinities and NaN stay."""
    require_kind("float", x)
    if not dtype.is_float or dtype.bits >= x.dtype.bits:
        raise UserError(f"{x} cannot be narrowed to {dtype}", reason="it has no fewer bits")
    return TensorType(dtype, x.shape)


@narrowed.reference
def narrowed_reference(x: Array, *, dtype: DType) -> Array:
    bounded = np.clip(x, dtype.min_value, dtype.max_value)
    return np.where(np.isfinite(x), bounded, x).astype(dtype.numpy)


@narrowed.compute
def narrowed_compute(x: te.Tensor, *, dtype: DType) -> te.Tensor:
    def element(e: Expr) -> Expr:
        is_finite = te.abs(e) < te.const(math.inf, e.dtype)
        bounded = te.clip(e, dtype.min_value, dtype.max_value)
        return te.cast(te.select(is_finite, bounded, e), dtype)

    return mapped(element, x, name="narrowed")


narrowed.layouts(elementwise_layouts)
