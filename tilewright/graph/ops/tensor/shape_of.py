"""The extents of a tensor as a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, product
from tilewright.ir import Expr
from tilewright.tensor import te


@op
def shape_of(x: Value, *, start: int = 0, end: int | None = None) -> Type:
    """The extents of `x` from dimension `start` up to `end`."""
    return TensorType("int64", [len(x.shape[start:end])])


@shape_of.reference
def shape_of_reference(x: Array, *, start: int, end: int | None) -> Array:
    return np.array(x.shape[start:end], np.int64)


@shape_of.compute
def shape_of_compute(x: te.Tensor, *, start: int, end: int | None) -> te.Tensor:
    dims = x.shape[start:end]

    def element(i: Expr) -> Expr:
        return _chosen(dims, i)

    return te.compute((len(dims),), element, name="shape_of")


@shape_of.symbolic
def shape_of_symbolic(x: Value, *, start: int, end: int | None) -> Array:
    dims = x.shape[start:end]
    return np.array([*dims, None], object)[:-1]


def _chosen(dims: Sequence[Expr], i: Expr) -> Expr:
    result: Expr = te.const(0) if not dims else dims[-1]
    for n in reversed(range(len(dims) - 1)):
        result = te.select(i == n, dims[n], result)
    return result


@op
def size_of(x: Value) -> Type:
    """How many elements `x` has."""
    del x
    return TensorType("int64")


@size_of.reference
def size_of_reference(x: Array) -> Array:
    return np.array(x.size, np.int64)


@size_of.compute
def size_of_compute(x: te.Tensor) -> te.Tensor:
    return te.compute((), lambda: product(x.shape), name="size_of")


@size_of.symbolic
def size_of_symbolic(x: Value) -> Array:
    found = np.empty((), object)
    found[()] = product(x.shape)
    return found
