"""Conversions and fused operations on NumPy arrays, rounded exactly once.

NumPy has no fused multiply-add and converts to the small floats through a wider one, which rounds
twice. Both are fixed by rounding the wide intermediate *to odd*: what was cut off then shows in its
last bit, so that the second rounding, to nearest, cannot mistake it for a tie.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.support.dtype import DType, float16, float32, float64

Array = np.ndarray[Any, np.dtype[Any]]

#: Scaled operands further apart than this only affect the sticky bit.
_FAR = 200
#: Below this a result may be subnormal and is computed with fractions instead.
_NEARLY_SUBNORMAL = 2.0**-1020


def convert(a: Array, dtype: DType) -> Array:
    """`a` cast to `dtype` as the IR defines it."""
    if dtype.is_bool:
        # Zero bits are no zero in float8_e8m0fnu, which has none.
        plain = a if a.dtype.kind in "biuf" else a.astype(np.float32)
        return plain != np.zeros((), plain.dtype)
    if dtype.is_float:
        return _to_float(a, dtype)
    is_float = a.dtype.kind not in "iub" and not _is_small_integer(a.dtype)
    return _saturate(a, dtype) if is_float else _wrap(a, dtype)


def fused_multiply_add(a: Array, b: Array, c: Array, dtype: DType) -> Array:
    """`a * b + c` rounded once to `dtype`, the type of all three."""
    a, b, c = np.broadcast_arrays(a, b, c)
    if dtype.scalar is float64:
        return _fma64(a, b, c)
    wide_a, wide_b, wide_c = (x.astype(np.float64) for x in (a, b, c))
    # Two significands of up to 24 bits multiply exactly in one of 53.
    return _to_float(_add_to_odd(wide_a * wide_b, wide_c), dtype)


def _is_small_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("int2", "uint2", "int4", "uint4")


def _to_float(a: Array, dtype: DType) -> Array:
    target = dtype.numpy
    if dtype.scalar in (float64, float32, float16) or a.dtype.name in ("float32", "float16"):
        return a.astype(target)
    # The small floats of `ml_dtypes` convert through float32.
    return _float32_to_odd(_float64_to_odd(a)).astype(target)


def _float64_to_odd(a: Array) -> Array:
    """`a` in float64; for integers beyond 2**53 its last bit is sticky for the bits dropped."""
    if a.dtype.name not in ("int64", "uint64"):
        return a.astype(np.float64)
    below = np.array(0x7FF, a.dtype)
    sticky = np.where(a & below, below + np.array(1, a.dtype), np.array(0, a.dtype))
    exact = (a <= 1 << 53) & ((a >= -(1 << 53)) if a.dtype.kind == "i" else True)
    return np.where(exact, a, (a & ~below) | sticky).astype(np.float64)


def _float32_to_odd(a: Array) -> Array:
    near = np.asarray(a.astype(np.float32))
    error = a - near.astype(np.float64)
    return _make_odd(near, error, np.dtype(np.int32))


def _add_to_odd(a: Array, b: Array) -> Array:
    total, error = _two_sum(a, b)
    return _make_odd(total, error, np.dtype(np.int64))


def _make_odd(near: Array, error: Array, bits: np.dtype[Any]) -> Array:
    """`near`, the nearest value, moved one step towards the true one where its last bit is even."""
    near = np.ascontiguousarray(near).reshape(np.shape(near))
    pattern = near.view(bits)
    inexact = np.isfinite(near) & np.isfinite(error) & (error != 0)
    grows = (error > 0) == (near > 0)
    step = np.where(grows, 1, -1).astype(bits)
    # A zero with an error only arises by underflow: the least subnormal replaces it.
    least = np.where(error > 0, 1, np.iinfo(bits).min + 1).astype(bits)
    moved = np.where(near == 0, least, pattern + step)
    odd = np.where(inexact & (pattern & 1 == 0), moved, pattern).astype(bits)
    return odd.view(near.dtype)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = np.asarray(a + b)
    part = total - a
    return total, np.asarray((a - (total - part)) + (b - part))


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Dekker's exact product; the operands must be far from overflow and underflow."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    low = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, low


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def _fma64(a: Array, b: Array, c: Array) -> Array:
    plain = np.asarray(np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), c, a * b + c))
    simple = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)) | (a * b == 0) & (
        (a == 0) | (b == 0)
    )
    result = np.where(simple, plain, _scaled_fma(a, b, c))
    delicate = ~simple & (np.abs(result) < _NEARLY_SUBNORMAL)
    if delicate.any():
        exact = [_fraction_fma(*t) for t in zip(a[delicate], b[delicate], c[delicate], strict=True)]
        result[delicate] = np.where(result[delicate] == exact, result[delicate], exact)
    return result


def _scaled_fma(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond's fused operation on significands, the exponents kept aside."""
    (a, a_exponent), (b, b_exponent), (c, c_exponent) = np.frexp(a), np.frexp(b), np.frexp(c)
    exponent = a_exponent + b_exponent
    c_exponent = np.where(c == 0, exponent, c_exponent)
    c = np.ldexp(c, np.clip(c_exponent - exponent, -_FAR, _FAR))
    # A far greater addend sets the scale of the result.
    exponent = np.where(c_exponent - exponent > _FAR, c_exponent - _FAR, exponent)
    high, low = _two_product(a, b)
    inner, inner_error = _two_sum(c, low)
    outer, outer_error = _two_sum(high, inner)
    return np.asarray(np.ldexp(outer + _add_to_odd(inner_error, outer_error), exponent))


def _fraction_fma(a: float, b: float, c: float) -> float:
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return float(exact)


def _saturate(a: Array, dtype: DType) -> Array:
    """Float to integer: cut off the fraction, stay within the type, NaN becomes 0."""
    wide = np.trunc(a.astype(np.float64))
    low, high = int(dtype.min_value), int(dtype.max_value)
    # `high` itself may round up to 2**63 or 2**64 here, hence `>=`: such values become `high`.
    above, below = wide >= float(high), wide <= float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide)
    whole = inside.astype(np.uint64 if low == 0 else np.int64)
    held = np.where(
        above, np.array(high, whole.dtype), np.where(below, np.array(low, whole.dtype), whole)
    )
    return held.astype(dtype.numpy)


def _wrap(a: Array, dtype: DType) -> Array:
    if dtype.bits >= 8:
        wide = a.astype(np.int64) if _is_small_integer(a.dtype) else a
        return wide.astype(dtype.numpy)
    kept = a.astype(np.int64) & ((1 << dtype.bits) - 1)
    negative = kept >> (dtype.bits - 1) if dtype.kind == "int" else 0
    return (kept - (negative << dtype.bits)).astype(dtype.numpy)
