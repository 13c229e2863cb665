"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.elementwise import add
from tilewright.tensor.ops.extents import broadcast_index, broadcast_shape, require_equal


def matmul(
    a: te.Tensor,
    b: te.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: object = None,
    name: str = "matmul",
) -> te.Tensor:
    """`a @ b` over the last two dimensions; those before are broadcast.

    Operands are converted to `out_dtype` (that of `a` unless given) before they are multiplied.
    """
    _require_matrices(name, a, b)
    dtype = DType.of(a.dtype if out_dtype is None else out_dtype)
    rows, depth = _swapped(a.shape[-2:], transpose_a)
    inner, columns = _swapped(b.shape[-2:], transpose_b)
    require_equal(name, "the extents that are summed over", depth, inner)
    batch = broadcast_shape(name, [a.shape[:-2], b.shape[:-2]])
    k = te.reduce_axis(depth, name="k")

    def element(*i: Expr) -> Any:
        *outer, row, column = i
        left = a[(*broadcast_index(a.shape[:-2], outer), *_swapped((row, k), transpose_a))]
        right = b[(*broadcast_index(b.shape[:-2], outer), *_swapped((k, column), transpose_b))]
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    names = [*(f"b{n}" for n in range(len(batch))), "i", "j"]
    return te.compute((*batch, rows, columns), element, name=name, axis_names=names)


def batch_matmul(
    a: te.Tensor,
    b: te.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: object = None,
    name: str = "batch_matmul",
) -> te.Tensor:
    """A product of matrices for each index of the first dimension."""
    if a.ndim != 3 or b.ndim != 3:
        raise UserError(f"{name} takes tensors of rank 3, not {a.ndim} and {b.ndim}")
    return matmul(a, b, transpose_a, transpose_b, out_dtype, name)


def dense(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: object = None,
    name: str = "dense",
) -> te.Tensor:
    """`x @ weight.T + bias`: the weight has one row for each output."""
    product = matmul(x, weight, transpose_b=True, out_dtype=out_dtype, name=name)
    return product if bias is None else add(product, bias, name=f"{name}_bias")


def _require_matrices(name: str, *tensors: te.Tensor) -> None:
    for tensor in tensors:
        if tensor.ndim < 2:
            raise UserError(f"{name} cannot multiply {tensor!r}", reason="it is no matrix")


def _swapped(pair: Sequence[Any], swap: bool) -> tuple[Any, Any]:
    return (pair[1], pair[0]) if swap else (pair[0], pair[1])
