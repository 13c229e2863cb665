"""Products of quantized tensors, summed exactly in int32.

Zero points are corrected for afterwards, so that the sums themselves are plain products of bytes,
for which machines have instructions:

    sum (a - p)(b - q)  =  sum a·b  -  p · sum b  -  q · sum a  +  count · p · q
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, is_single, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.neural.conv import conv_shape, convolved, convolved_reference
from tilewright.graph.ops.neural.matmul import (
    find_product_shape,
    product,
    product_reference,
)
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.sizes.agreement import require_equal
from tilewright.graph.sizes.broadcast import broadcast_shapes
from tilewright.ir import DType, Expr, const
from tilewright.tensor import te

_INT32 = DType.of("int32")

# ---- matrices -----------------------------------------------------------------------------------


@op
def matmul_integer(
    a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None
) -> Type:
    """(a - a_zero) @ (b - b_zero) in int32; zero points are one number, one for each row of a, or
    one for each column of b."""
    require_kind("integer", a, b)
    rows, columns = rows_and_columns(a, b)
    require_zeros(a, a_zero, rows)
    require_zeros(b, b_zero, columns)
    return TensorType(_INT32, find_product_shape(a.shape, b.shape))


@matmul_integer.reference
def matmul_integer_reference(
    a: Array, b: Array, a_zero: Array | None, b_zero: Array | None
) -> Array:
    left = _shifted(a, a_zero, -2 if a.ndim > 1 else -1)
    right = _shifted(b, b_zero, -1)
    return product_reference(left, right, False, False, np.int64).astype(np.int32)


def _shifted(x: Array, zero: Array | None, axis: int) -> Array:
    if zero is None:
        return x.astype(np.int64)
    if zero.ndim == 1 and zero.size > 1 and x.ndim > 1:
        zero = zero.reshape([-1 if n == x.ndim + axis else 1 for n in range(x.ndim)])
    elif zero.size == 1:
        zero = zero.reshape(())
    return x.astype(np.int64) - zero.astype(np.int64)


@matmul_integer.compute
def matmul_integer_compute(
    a: te.Tensor, b: te.Tensor, a_zero: te.Tensor | None, b_zero: te.Tensor | None
) -> te.Tensor:
    return integer_product(a, b, a_zero, b_zero)


def integer_product(
    a: te.Tensor, b: te.Tensor, a_zero: te.Tensor | None, b_zero: te.Tensor | None
) -> te.Tensor:
    """The product of two quantized tensors minus their zero points, not scaled."""
    total = product(a, b, dtype=_INT32)
    depth = te.cast(a.shape[-1], _INT32)
    columns = None if a_zero is None else _sums(b, b.ndim - 2 if b.ndim > 1 else 0, "b_sums")
    rows = None if b_zero is None else _sums(a, a.ndim - 1, "a_sums")
    if columns is None and rows is None:
        return total
    row_rank, column_rank = int(a.ndim > 1), int(b.ndim > 1)

    def element(*i: Expr) -> Expr:
        batch = i[: len(i) - row_rank - column_rank]
        row = i[len(batch) : len(batch) + row_rank]
        column = i[len(i) - column_rank :] if column_rank else ()
        # Terms left of the product exist before it, so that they can be added in its tiles.
        value: Expr = total[i]
        p = None if a_zero is None else _zero_at(a_zero, batch, (*row, te.const(0)))
        q = None if b_zero is None else _zero_at(b_zero, batch, (te.const(0), *column))
        if p is not None and columns is not None:
            value = -p * _batch_read(columns, batch, column) + value
        if q is not None and rows is not None:
            value = -q * _batch_read(rows, batch, row) + value
        return value if p is None or q is None else value + p * q * depth

    return te.compute(total.shape, element, name="matmul_shifted")


def _sums(x: te.Tensor, axis: int, name: str) -> te.Tensor:
    """Sums along one axis, which is dropped, in int32."""
    k = te.reduce_axis(x.shape[axis], name="k")

    def element(*i: Expr) -> Any:
        return te.sum(te.cast(x[(*i[:axis], k, *i[axis:])], _INT32), axis=k)

    return te.compute([*x.shape[:axis], *x.shape[axis + 1 :]], element, name=name)


def _batch_read(x: te.Tensor, batch: Sequence[Expr], last: Sequence[Expr]) -> Expr:
    own = x.ndim - len(last)
    outer = batch[len(batch) - own :]
    at = [te.const(0) if known_dim(d) == 1 else i for d, i in zip(x.shape, outer, strict=False)]
    return x[(*at, *last)]


def _zero_at(zero: te.Tensor, batch: Sequence[Expr], place: Sequence[Expr]) -> Expr:
    """The zero point of a row (position: row, 0) or of a column (position: 0, column)."""
    if is_single(zero.shape):
        at: Sequence[Expr] = (te.const(0),) * zero.ndim
    elif zero.ndim == 1:
        at = (next(p for p in place if p is not te.const(0)),)
    else:
        full = (*batch, *place)[-zero.ndim :]
        at = [
            te.const(0) if known_dim(d) == 1 else i for d, i in zip(zero.shape, full, strict=True)
        ]
    return te.cast(zero[tuple(at)], _INT32)


def require_zeros(x: Value, zero: Value | None, wanted: Sequence[Expr]) -> None:
    """Refuse zero points of another type, or without exactly one for each of `wanted`."""
    if zero is not None:
        require_same_dtype(x, zero)
        require_parameters(zero, wanted)


def require_parameters(given: Value, wanted: Sequence[Expr]) -> None:
    """Refuse all but one number, or one for each of `wanted`, as a vector or in full."""
    if given.ndim == 1 and known_dim(given.shape[0]) != 1:
        wanted = [d for d in wanted[-2:] if known_dim(d) != 1]
    for n in range(1, given.ndim + 1):
        if known_dim(given.shape[-n]) != 1:
            size = wanted[-n] if n <= len(wanted) else 1
            require_equal(given.shape[-n], size, f"{given.name} and what it has a number for")


def rows_and_columns(a: Value, b: Value) -> tuple[list[Expr], list[Expr]]:
    """Shapes with one number per row of the first factor, and per column of the second."""
    one, batch = const(1), broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2] if a.ndim > 1 else one
    columns = b.shape[-1] if b.ndim > 1 else one
    return [*batch, rows, one], [*batch, one, columns]


# ---- convolutions -------------------------------------------------------------------------------


@op
def conv_integer(
    x: Value,
    weight: Value,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    groups: int = 1,
) -> Type:
    """The convolution of (x - x_zero) by (weight - weight_zero) in int32; padding counts as zero.
    There is one zero point of the weights, or one for each output channel."""
    require_kind("integer", x, weight)
    require_zeros(x, x_zero, ())
    require_zeros(weight, weight_zero, weight.shape[:1])
    return TensorType(_INT32, conv_shape(x, weight, strides, pads, dilations, groups))


@conv_integer.reference
def conv_integer_reference(
    x: Array,
    weight: Array,
    x_zero: Array | None,
    weight_zero: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
) -> Array:
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    image = _shifted(x, x_zero, -x.ndim)
    factors = _shifted(weight, weight_zero, -weight.ndim)
    return convolved_reference(image, factors, window, groups).astype(np.int32)


@conv_integer.compute
def conv_integer_compute(
    x: te.Tensor,
    weight: te.Tensor,
    x_zero: te.Tensor | None,
    weight_zero: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    groups: int,
) -> te.Tensor:
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    return integer_convolution(x, weight, x_zero, weight_zero, window, groups)


def integer_convolution(
    x: te.Tensor,
    weight: te.Tensor,
    x_zero: te.Tensor | None,
    weight_zero: te.Tensor | None,
    window: Window,
    groups: int,
) -> te.Tensor:
    """The convolution of two quantized tensors minus their zero points, not scaled."""
    if weight_zero is not None:
        # Weights that are not centred are rare: they are centred before the product.
        weight = _centred(weight, weight_zero)
    # The padding is a real zero, which is stored as the zero point.
    zero = 0 if x_zero is None else x_zero[(0,) * x_zero.ndim]
    total = convolved(window.padded(x, zero), weight, window, groups, _INT32)
    if x_zero is None:
        return total
    sums = _kernel_sums(weight)

    def element(*i: Expr) -> Expr:
        return total[i] - te.cast(x_zero[(0,) * x_zero.ndim], _INT32) * sums[i[1]]

    return te.compute(total.shape, element, name="conv_shifted")


def _centred(weight: te.Tensor, zero: te.Tensor) -> te.Tensor:
    def element(*i: Expr) -> Expr:
        at = (0,) * zero.ndim if is_single(zero.shape) else (i[0],)
        return te.cast(weight[i], _INT32) - te.cast(zero[at], _INT32)

    return te.compute(weight.shape, element, name="weight_centred")


def _kernel_sums(weight: te.Tensor) -> te.Tensor:
    """The sum of all weights of each output channel."""
    axes = [te.reduce_axis(d, name=f"k{n}") for n, d in enumerate(weight.shape[1:])]

    def element(o: Expr) -> Any:
        return te.sum(te.cast(weight[(o, *axes)], _INT32), axis=axes)

    return te.compute(weight.shape[:1], element, name="weight_sums")
