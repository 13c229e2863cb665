"""Elements selected from one tensor or another."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type
from tilewright.graph.ops.elementwise.elementwise import (
    broadcast_type,
    map_known,
    mapped,
    require_kind,
    require_same_dtype,
)
from tilewright.tensor import te


@op
def where(condition: Value, a: Value, b: Value) -> Type:
    """`a` where the condition holds, else `b`; all three broadcast."""
    require_kind("bool", condition)
    require_same_dtype(a, b)
    return broadcast_type(a.dtype, condition, a, b)


@where.reference
def where_reference(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


@where.compute
def where_compute(condition: te.Tensor, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return mapped(te.select, condition, a, b, name="where")


@where.symbolic
def where_symbolic(condition: Value, a: Value, b: Value) -> Array | None:
    return map_known(te.select, condition, a, b)
