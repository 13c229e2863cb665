"""Functions of one byte, as tables of bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.layouts.images import Blocking, Form, elementwise_layouts
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

_BITS = 8


@op
def byte_table(x: Value, table: Value) -> Type:
    """For each byte the element of a table, whose first one is that of the least byte."""
    if not all(v.dtype.is_integer and v.dtype.bits == _BITS for v in (x, table)):
        raise UserError(f"byte_table takes bytes to bytes, not {x.dtype} to {table.dtype}")
    if table.ndim != 1 or known_dim(table.shape[0]) != 1 << _BITS:
        raise UserError(f"byte_table takes a table of {1 << _BITS} bytes, not {table.type}")
    return TensorType(table.dtype, x.shape)


@byte_table.reference
def byte_table_reference(x: Array, table: Array) -> Array:
    return table[x.astype(np.int64) - int(DType.of(x.dtype).min_value)]


@byte_table.compute
def byte_table_compute(x: te.Tensor, table: te.Tensor) -> te.Tensor:
    least = int(x.dtype.min_value)

    def element(*i: Expr) -> Expr:
        return table[te.cast(x[i], "int64") - least]

    return te.compute(x.shape, element, name="byte_table")


@byte_table.layouts
def _layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    return elementwise_layouts(blocking, call, out, whole=1)
