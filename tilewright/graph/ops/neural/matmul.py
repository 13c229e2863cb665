"""Products of matrices: plain, with an addend, and by weights with one row per output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind, require_same_dtype
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal
from tilewright.graph.sizes.broadcast import broadcast_index, broadcast_shapes, require_broadcast_to
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- matmul -------------------------------------------------------------------------------------


@op
def matmul(
    a: Value,
    b: Value,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: DType | None = None,
) -> Type:
    """`a @ b` as NumPy has it: the dimensions before the last two are broadcast, vectors are
    rows or columns. `transpose_a` and `transpose_b` exchange the last two dimensions. The result is
    in `dtype`, to which the factors are converted first, or in their type."""
    require_kind("number", a, b)
    if dtype is None:
        require_same_dtype(a, b)
    return TensorType(
        dtype or a.dtype, find_product_shape(a.shape, b.shape, transpose_a, transpose_b)
    )


@matmul.reference
def matmul_reference(
    a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, dtype: DType | None
) -> Array:
    return product_reference(a, b, transpose_a, transpose_b, dtype and dtype.numpy)


@matmul.compute
def matmul_compute(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, dtype: DType | None
) -> te.Tensor:
    return product(a, b, transpose_a, transpose_b, dtype)


def product_reference(
    a: Array, b: Array, transpose_a: bool, transpose_b: bool, dtype: Any = None
) -> Array:
    """The product by NumPy, summed in a wide type."""
    a = np.swapaxes(a, -1, -2) if transpose_a and a.ndim > 1 else a
    b = np.swapaxes(b, -1, -2) if transpose_b and b.ndim > 1 else b
    result = np.dtype(a.dtype if dtype is None else dtype)
    work = np.float64 if DType.of(result).is_float else result
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a.astype(work), b.astype(work))).astype(result)


def product(
    a: te.Tensor,
    b: te.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: object = None,
    name: str = "matmul",
) -> te.Tensor:
    """The product in `dtype` (that of `a` unless given); narrow floats are summed in float32."""
    result = DType.of(a.dtype if dtype is None else dtype)
    work = accumulator(result)
    shape = find_product_shape(a.shape, b.shape, transpose_a, transpose_b)
    k = te.reduce_axis(_summed(a.shape, b.shape, transpose_a, transpose_b), name="k")
    batch = shape[: len(shape) - (a.ndim > 1) - (b.ndim > 1)]

    def element(*i: Expr) -> Any:
        outer, inner = i[: len(batch)], i[len(batch) :]
        row, column = inner[: a.ndim > 1], inner[len(inner) - (b.ndim > 1) :]
        left = _swapped((*row, k), transpose_a)
        right = _swapped((k, *column), transpose_b)
        x = a[(*broadcast_index(a.shape[:-2], batch, outer), *left)]
        y = b[(*broadcast_index(b.shape[:-2], batch, outer), *right)]
        return te.sum(x.astype(work) * y.astype(work), axis=k)

    total = te.compute(shape, element, name=name, axis_names=_names(len(batch), len(shape)))
    if work is result:
        return total
    return mapped(lambda e: te.cast(e, result), total, name=f"{name}_result")


def _names(batch: int, rank: int) -> list[str]:
    return [*(f"b{n}" for n in range(batch)), *"ij"[: rank - batch]]


def _swapped(pair: Sequence[Any], swap: bool) -> tuple[Any, ...]:
    return tuple(reversed(pair)) if swap else tuple(pair)


def _depth(shape: Sequence[Expr], swap: bool, first: bool) -> Expr:
    """The extent that is summed over."""
    return shape[0] if len(shape) == 1 else _swapped(shape[-2:], swap)[0 if first else 1]


def _summed(a: Sequence[Expr], b: Sequence[Expr], swap_a: bool, swap_b: bool) -> Expr:
    """The extent that both operands are summed over: a number, where one of them has one."""
    left, right = _depth(a, swap_a, first=False), _depth(b, swap_b, first=True)
    return left if known_dim(right) is None else right


def find_product_shape(
    a: Sequence[Expr], b: Sequence[Expr], transpose_a: bool = False, transpose_b: bool = False
) -> tuple[Expr, ...]:
    """The shape of a product of matrices or vectors."""
    if not a or not b:
        raise UserError("matmul takes vectors and matrices, not scalars")
    left, right = _depth(a, transpose_a, first=False), _depth(b, transpose_b, first=True)
    require_equal(left, right, "the rows and columns that are multiplied")
    rows = [_swapped(a[-2:], transpose_a)[0]] if len(a) > 1 else []
    columns = [_swapped(b[-2:], transpose_b)[1]] if len(b) > 1 else []
    return (*broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)


# ---- gemm and dense -----------------------------------------------------------------------------


@op
def gemm(
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Type:
    """alpha * (a @ b) + beta * c for two matrices; c is broadcast to the product."""
    require_kind("number", a, b)
    require_same_dtype(a, b, *([] if c is None else [c]))
    if a.ndim != 2 or b.ndim != 2:
        raise UserError(f"gemm takes matrices, not tensors of {a.ndim} and {b.ndim} dimensions")
    shape = find_product_shape(a.shape, b.shape, transpose_a, transpose_b)
    if c is not None:
        require_broadcast_to(shape, c.shape, "what gemm adds")
    return TensorType(a.dtype, shape)


@gemm.reference
def gemm_reference(
    a: Array,
    b: Array,
    c: Array | None,
    *,
    alpha: float,
    beta: float,
    transpose_a: bool,
    transpose_b: bool,
) -> Array:
    dtype = np.float64 if DType.of(a.dtype).is_float else a.dtype
    total = product_reference(a, b, transpose_a, transpose_b, dtype)
    scaled = total * _factor(alpha, total.dtype)
    return (scaled if c is None else scaled + c * _factor(beta, c.dtype)).astype(a.dtype)


def _factor(number: float, dtype: Any) -> Any:
    """Integral factors keep integers; others convert them to floats."""
    is_whole = not DType.of(dtype).is_float and float(number).is_integer()
    return np.array(int(number)).astype(dtype) if is_whole else number


@gemm.compute
def gemm_compute(
    a: te.Tensor,
    b: te.Tensor,
    c: te.Tensor | None,
    *,
    alpha: float,
    beta: float,
    transpose_a: bool,
    transpose_b: bool,
) -> te.Tensor:
    total = product(a, b, transpose_a, transpose_b, accumulator(a.dtype), "gemm")
    result = a.dtype

    def element(e: Expr, *addend: Expr) -> Expr:
        e = _scaled(e, alpha)
        for other in addend:
            e = _sum(e, _scaled(other.astype(total.dtype), beta))
        return te.cast(e, result)

    if c is None and alpha == 1 and total.dtype is result:
        return total
    added = [] if c is None else [c]
    return mapped(element, total, *added, shape=total.shape, name="gemm_result")


def _scaled(e: Expr, factor: float) -> Expr:
    """Integral factors keep integers; others convert them to floats."""
    if factor == 1:
        return e
    if e.dtype.is_float:
        return e * factor
    return e * int(factor) if float(factor).is_integer() else te.cast(e, "float64") * factor


def _sum(a: Expr, b: Expr) -> Expr:
    if a.dtype is b.dtype:
        return a + b
    return te.cast(a, "float64") + te.cast(b, "float64")


@op
def dense(x: Value, weight: Value, bias: Value | None = None) -> Type:
    """x @ weight.T + bias: the weight has one row for each output, x any number of dimensions."""
    require_kind("number", x, weight)
    require_same_dtype(x, weight, *([] if bias is None else [bias]))
    if weight.ndim != 2 or x.ndim < 1:
        raise UserError(f"dense takes a matrix of weights, not {weight}")
    shape = find_product_shape(x.shape, weight.shape, False, True)
    if bias is not None and bias.ndim != 1:
        raise UserError(f"dense takes a bias of {shape[-1]} elements, not {bias}")
    if bias is not None:
        require_equal(shape[-1], bias.shape[0], "the rows of weights and the bias")
    return TensorType(x.dtype, shape)


@dense.reference
def dense_reference(x: Array, weight: Array, bias: Array | None) -> Array:
    dtype = np.float64 if DType.of(x.dtype).is_float else x.dtype
    total = product_reference(x, weight, False, True, dtype)
    return (total if bias is None else total + bias).astype(x.dtype)


@dense.compute
def dense_compute(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    if bias is None:
        return product(x, weight, False, True, name="dense")
    total = product(x, weight, False, True, accumulator(x.dtype), "dense")
    result = x.dtype

    def element(*i: Expr) -> Expr:
        return te.cast(total[i] + bias[i[-1]].astype(total.dtype), result)

    return te.compute(total.shape, element, name="dense_bias")
