"""Powers and remainders, whose operands may differ in type or sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from tilewright.graph.sizes.broadcast import broadcast_index, broadcast_shapes
from tilewright.ir import Alloc, Buffer, Expr, For, If, Stmt, Store, Var, While, seq
from tilewright.tensor import te

# ---- pow ----------------------------------------------------------------------------------------


@op
def pow_(a: Value, b: Value) -> Type:
    """`a` to the power of `b`; the result has the element type of `a`."""
    require_kind("number", a, b)
    return broadcast_type(a.dtype, a, b)


@pow_.reference
def pow_reference(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        if _is_integer(a) and _is_integer(b):
            return _integer_power(a, b)
        if _is_integer(a):
            return _to_integer(np.power(a.astype(np.float64), b.astype(np.float64)), a.dtype)
        return np.power(a, b.astype(a.dtype))


@pow_.compute
def pow_compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    if a.dtype.is_integer and b.dtype.is_integer:
        return _integer_powers(a, b, broadcast_shapes(a.shape, b.shape))
    return mapped(_power, a, b, name="pow")


def _is_integer(x: Array) -> bool:
    return np.issubdtype(x.dtype, np.integer)


def _to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        inside = np.nan_to_num(np.trunc(x), nan=0.0)
        result = inside.astype(dtype)
    result = np.where(inside >= float(info.max), info.max, result)
    return np.where(inside <= float(info.min), info.min, result).astype(dtype)


def _integer_power(a: Array, b: Array) -> Array:
    """Wraps around; a negative power is 1 / a**-b rounded, and 0 for 0."""
    a, b = np.broadcast_arrays(a, b)
    wide, power = a.astype(np.int64), b.astype(np.int64)
    inverse = np.where(wide == 1, 1, np.where(wide == -1, np.where(power & 1, -1, 1), 0))
    result = np.power(wide, np.maximum(power, 0))
    return np.where(power < 0, inverse, result).astype(a.dtype)


def _power(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return te.pow(a, te.cast(b, a.dtype))
    return te.cast(te.pow(te.cast(a, "float64"), te.cast(b, "float64")), a.dtype)


def _integer_powers(a: te.Tensor, b: te.Tensor, shape: Sequence[Expr]) -> te.Tensor:
    """By squaring, in a loop for each element: as a formula it would grow without bound."""

    def fill(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        indices = [Var(f"i{n}") for n in range(len(shape))]
        x, y = (i[broadcast_index(i.shape, shape, indices)] for i in ins)
        body = _by_squaring(x, y, outs[0], tuple(indices))
        for index, extent in reversed(list(zip(indices, shape, strict=True))):
            body = For(index, extent, "serial", body)
        return body

    return te.extern(shape, [a, b], fill, dtype=a.dtype, name="pow")


def _by_squaring(x: Expr, y: Expr, out: Buffer, indices: tuple[Expr, ...]) -> Stmt:
    square = Buffer("square", x.dtype, (), scope="local")
    result = Buffer("result", x.dtype, (), scope="local")
    left = Buffer("left", y.dtype, (), scope="local")
    step = seq(
        If((left[()] & 1) > 0, Store(result, (), result[()] * square[()])),
        Store(square, (), square[()] * square[()]),
        Store(left, (), left[()] >> 1),
    )
    start: Expr = te.const(1, x.dtype)
    if y.dtype.is_signed:
        # 1 / x ** -y rounds to zero except for 1 and -1, whose powers repeat.
        start, y = te.select(y < 0, _inverse(x, y), start), te.maximum(y, 0)
    before = [Store(square, (), x), Store(left, (), y), Store(result, (), start)]
    loop = While(left[()] > 0, step)
    return Alloc((square, result, left), seq(*before, loop, Store(out, indices, result[()])))


def _inverse(x: Expr, y: Expr) -> Expr:
    one, zero = te.const(1, x.dtype), te.const(0, x.dtype)
    if not x.dtype.is_signed:
        return te.select(x == one, one, zero)
    of_minus_one = te.select((y & 1) > 0, x, one)
    is_minus_one = x == te.const(-1, x.dtype)
    return te.select(x == one, one, te.select(is_minus_one, of_minus_one, zero))


# ---- mod ----------------------------------------------------------------------------------------


@op
def mod(a: Value, b: Value, *, fmod: bool = False) -> Type:
    """The remainder; with the sign of the divisor, or with `fmod` that of the dividend."""
    require_kind("number", a, b)
    require_same_dtype(a, b)
    return broadcast_type(a.dtype, a, b)


@mod.reference
def mod_reference(a: Array, b: Array, *, fmod: bool) -> Array:
    with np.errstate(all="ignore"):
        return (np.fmod if fmod else np.mod)(a, b).astype(a.dtype, copy=False)


@mod.compute
def mod_compute(a: te.Tensor, b: te.Tensor, *, fmod: bool) -> te.Tensor:
    return mapped(_truncated if fmod else _floored, a, b, name="mod")


@mod.symbolic
def mod_symbolic(a: Value, b: Value, *, fmod: bool) -> Array | None:
    return map_known(_truncated if fmod else _floored, a, b)


def _truncated(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return te.truncmod(a, b)
    # In float64, the quotient of narrower floats is exact enough to be truncated right.
    x, y = te.cast(a, "float64"), te.cast(b, "float64")
    quotient = te.trunc(x / y)
    # A dividend smaller than the divisor is the remainder, even if the divisor is infinite.
    remainder = te.select(te.abs(x) < te.abs(y), x, x - quotient * y)
    return te.cast(te.copysign(remainder, x), a.dtype)


def _floored(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return te.floormod(a, b)
    remainder = _truncated(a, b)
    zero = te.const(0, a.dtype)
    floored = te.select((remainder < 0) ^ (b < 0), remainder + b, remainder)
    return te.select(remainder == zero, te.copysign(zero, b), floored)
