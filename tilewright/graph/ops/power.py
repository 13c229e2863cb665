"""Powers and remainders, whose operands may differ in type or sign."""

from __future__ import annotations

import numpy as np

from tilewright.graph.broadcast import broadcast_checks
from tilewright.graph.elementwise import (
    broadcast_type,
    map_known,
    mapped,
    require_kind,
    require_same_dtype,
)
from tilewright.graph.ir import Array, Value
from tilewright.graph.op import op
from tilewright.graph.types import Type
from tilewright.ir import Expr
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
    return mapped(_power, a, b, name="pow")


pow_.checks(broadcast_checks)


def _is_integer(x: Array) -> bool:
    return np.issubdtype(x.dtype, np.integer)


def _to_integer(x: Array, dtype: np.dtype) -> Array:  # type: ignore[type-arg]
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        inside = np.nan_to_num(np.trunc(x), nan=0.0)
        result = inside.astype(dtype)
    result = np.where(inside >= float(info.max), info.max, result)
    return np.where(inside <= float(info.min), info.min, result).astype(dtype)


def _integer_power(a: Array, b: Array) -> Array:
    """Wraps around; a negative power is what 1 / a**-b rounds to."""
    a, b = np.broadcast_arrays(a, b)
    positive = np.where(b < 0, 0, b).astype(np.int64)
    result = np.power(a.astype(np.int64), positive).astype(a.dtype)
    odd = (b % 2 != 0) & (a == a.dtype.type(-1) if a.dtype.kind == "i" else False)
    inverse = np.where(a == 1, 1, np.where(odd, -1, (a.astype(np.int64) == -1) & ~odd))
    return np.where(b < 0, inverse, result).astype(a.dtype)


def _power(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return te.pow(a, te.cast(b, a.dtype))
    if b.dtype.is_float:
        return te.cast(te.pow(te.cast(a, "float64"), te.cast(b, "float64")), a.dtype)
    return _power_of_integers(a, b)


def _power_of_integers(a: Expr, b: Expr) -> Expr:
    """By squaring, bit by bit; powers beyond 2**16 matter for 0, 1 and -1 alone."""
    one, zero = te.const(1, a.dtype), te.const(0, a.dtype)
    result: Expr = one
    square = a
    for bit in range(min(b.dtype.bits - 1, 16)):
        is_set = ((b >> bit) & 1) > 0
        result = te.select(is_set, result * square, result)
        square = square * square
    if b.dtype.kind == "uint":
        return result
    minus_one = te.select((b & 1) > 0, a, one) if a.dtype.kind == "int" else zero
    is_minus_one = a * a
    inverse = te.select(is_minus_one > one, zero, minus_one)
    return te.select(b < 0, te.select(a > one, zero, inverse), result)


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


mod.checks(broadcast_checks)


def _truncated(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return te.truncmod(a, b)
    # The quotient of narrower floats is exact enough in float64 to be truncated right.
    x, y = te.cast(a, "float64"), te.cast(b, "float64")
    quotient = te.trunc(x / y)
    # Nothing is taken from what is smaller than the divisor, be that infinite.
    remainder = te.select(te.abs(x) < te.abs(y), x, x - quotient * y)
    return te.cast(te.copysign(remainder, x), a.dtype)


def _floored(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return te.floormod(a, b)
    remainder = _truncated(a, b)
    zero = te.const(0, a.dtype)
    turned = te.select((remainder < 0) ^ (b < 0), remainder + b, remainder)
    return te.select(remainder == zero, te.copysign(zero, b), turned)
