"""Determinants, by elimination with pivots."""

# pyright: reportMissingParameterType=false, reportCallIssue=false

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, product
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_equal
from tilewright.ir import DType, Function
from tilewright.support.errors import UserError
from tilewright.tensor import ElementType, alloc, parallel, script


@op
def det(x: Value) -> Type:
    """The determinant of every matrix in the last two dimensions."""
    require_kind("float", x)
    _require_square(x)
    return TensorType(x.dtype, x.shape[:-2])


@det.reference
def det_reference(x: Array) -> Array:
    return np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)


@det.decompose
def det_decompose(b: Any, x: Value) -> Value:
    size = x.shape[-1]
    matrices = b.reshape(x, shape=[product(x.shape[:-2]), size, size])
    if x.dtype.bits < 32:
        wide = b.det_of_rows(b.cast(matrices, dtype="float32"))
        return b.cast(b.reshape(wide, shape=x.shape[:-2]), dtype=x.dtype)
    return b.reshape(b.det_of_rows(matrices), shape=x.shape[:-2])


def _require_square(x: Value) -> None:
    if x.ndim < 2:
        raise UserError(f"{x} is no matrix")
    require_equal(x.shape[-2], x.shape[-1], "the sides of a square")


@op
def det_of_rows(x: Value) -> Type:
    """The determinants of M×n×n."""
    require_kind("float", x)
    _require_square(x)
    return TensorType(x.dtype, x.shape[:1])


det_of_rows.reference(det_reference)


@det_of_rows.kernel
def det_of_rows_kernel(x: Value) -> Function:
    return elimination(x.dtype)


@cache
def elimination(dtype: DType) -> Function:
    """Multiples of each row are subtracted from those below until these are upper triangular."""
    element: Any = ElementType(dtype)

    @script
    def determinants(x=element["m", "n", "n"], out=element["m"]):
        size = x.shape[1]
        for number in parallel(x.shape[0]):
            rest = alloc(element["n", "n"])
            for i in range(size):
                for j in range(size):
                    rest[i, j] = x[number, i, j]
            result = element(1)
            for k in range(size):
                pivot = k
                for i in range(k + 1, size):
                    if abs(rest[i, k]) > abs(rest[pivot, k]):
                        pivot = i
                if pivot != k:
                    result = -result
                    for j in range(size):
                        rest[k, j], rest[pivot, j] = rest[pivot, j], rest[k, j]
                result = result * rest[k, k]
                if rest[k, k] != 0:
                    for i in range(k + 1, size):
                        factor = rest[i, k] / rest[k, k]
                        for j in range(k, size):
                            rest[i, j] = rest[i, j] - factor * rest[k, j]
            out[number] = result

    return determinants
