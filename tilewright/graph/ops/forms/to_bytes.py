"""Elements times a factor, as bytes without a zero point."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind, require_same_dtype
from tilewright.graph.ops.quantized.quantize import to_integer
from tilewright.graph.sizes.broadcast import require_broadcast_to
from tilewright.ir import DType
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def to_bytes(x: Value, factor: Value, *, dtype: DType) -> Type:
    """x · factor, rounded and clamped to int8 or uint8; the factor is broadcast to x."""
    require_kind("float", x, factor)
    require_same_dtype(x, factor)
    require_broadcast_to(x.shape, factor.shape, "the factor of bytes")
    if not dtype.is_integer or dtype.bits != 8:
        raise UserError(f"to_bytes gives int8 or uint8, not {dtype}")
    return TensorType(dtype, x.shape)


@to_bytes.reference
def to_bytes_reference(x: Array, factor: Array, *, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        rounded = np.nan_to_num(np.rint(x * factor))
    return np.clip(rounded, dtype.min_value, dtype.max_value).astype(dtype.numpy)


@to_bytes.compute
def to_bytes_compute(x: te.Tensor, factor: te.Tensor, *, dtype: DType) -> te.Tensor:
    return mapped(lambda e, f: to_integer(e * f, None, dtype), x, factor, name="bytes")


to_bytes.layouts(elementwise_layouts)
