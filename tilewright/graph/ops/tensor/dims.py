"""Tensors of integers that are computed from symbolic dimensions alone."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.ir import Array
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import KINDS
from tilewright.ir import DType, Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op(scalar=True)
def dims(*, elements: Dims, shape: Ints, dtype: DType) -> Type:
    """The tensor with these elements, row by row."""
    if dtype.kind not in KINDS["integer"]:
        raise UserError(f"dims gives whole numbers, not {dtype}")
    if math.prod(shape) != len(elements):
        raise UserError(f"{len(elements)} elements do not make the shape {list(shape)}")
    return TensorType(dtype, shape)


@dims.reference
def dims_reference(*, elements: Ints, shape: Ints, dtype: DType) -> Array:
    return np.array(elements, np.int64).astype(dtype.numpy).reshape(shape)


@dims.compute
def dims_compute(*, elements: Dims, shape: Ints, dtype: DType) -> te.Tensor:
    numbers = [e if isinstance(e, Expr) else const(e) for e in elements]

    def element(*i: Expr) -> Expr:
        position: Expr = const(0)
        for index, extent in zip(i, shape, strict=True):
            position = position * extent + index
        chosen: Expr = numbers[-1] if numbers else const(0)
        for n, number in reversed(list(enumerate(numbers[:-1]))):
            chosen = te.select(position == n, number, chosen)
        return te.cast(chosen, dtype)

    return te.compute(shape, element, name="dims")


@dims.symbolic
def dims_symbolic(*, elements: Dims, shape: Ints, dtype: DType) -> Array:
    del dtype
    found = np.empty(len(elements), object)
    for n, element in enumerate(elements):
        found[n] = element if isinstance(element, Expr) else const(element)
    return found.reshape(shape)
