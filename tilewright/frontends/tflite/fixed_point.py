"""TFLite's integer arithmetic for scales: factors as multipliers of 31 bits and shifts.

The reference kernels multiply sums by `multiplier / 2**31 * 2**exponent`. Most of them round twice:
the high half of the product, then the shift by the exponent. See the operator `requantize`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.tensors import Quantization
from tilewright.graph import Array, Value
from tilewright.ir import DType
from tilewright.support.errors import UserError

_BITS: Final = 31
INT32: Final = DType.of("int32")


class Multiplier(NamedTuple):
    """Factors as integers: x · factor is x · numbers / 2**shifts."""

    numbers: Array
    shifts: Array

    def shortened(self) -> Multiplier:
        """Factors of 15 bits, by which sums of 64 bits are multiplied."""
        numbers = np.minimum((self.numbers.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF)
        return Multiplier(numbers.astype(np.int32), self.shifts - np.int32(16))

    def divided(self, count: int) -> Multiplier:
        """Factors divided by a number of elements, as in the kernels for means."""
        room = min(max(count, 1).bit_length() - 1, 32, int(_BITS + _BITS - self.shifts.max()))
        numbers = (self.numbers.astype(np.int64) << room) // max(count, 1)
        return Multiplier(numbers.astype(np.int32), self.shifts + np.int32(room))


def multiplier_of(factors: Any) -> Multiplier:
    """Factors, which are real and not negative, in fixed point."""
    real = np.asarray(factors, np.float64)
    if not np.all(np.isfinite(real)) or np.any(real < 0):
        raise UserError("a scale is negative or no number")
    parts, exponents = np.frexp(real)
    numbers = np.floor(parts * (1 << _BITS) + 0.5).astype(np.int64)
    over = numbers == 1 << _BITS
    numbers, exponents = np.where(over, numbers // 2, numbers), exponents + over
    tiny, huge = exponents < -_BITS, exponents > _BITS - 1
    numbers = np.where(tiny, 0, np.where(huge, (1 << _BITS) - 1, numbers))
    exponents = np.where(tiny, 0, np.minimum(exponents, _BITS - 1))
    return Multiplier(numbers.astype(np.int32), (_BITS - exponents).astype(np.int32))


def scaled(
    n: Node,
    x: Value,
    factors: Any,
    *,
    zero: int = 0,
    low: int = int(INT32.min_value),
    high: int = int(INT32.max_value),
    dtype: DType = INT32,
    twice: bool = True,
) -> Value:
    """x times factors that are broadcast to it, plus a zero point, clamped to bounds.

    Factors are real numbers, or a `Multiplier`."""
    found = factors if isinstance(factors, Multiplier) else multiplier_of(factors)
    return n.builder.requantize(
        x,
        n.constant(found.numbers),
        n.constant(found.shifts),
        zero=zero,
        low=low,
        high=high,
        dtype=dtype,
        twice=twice,
        least=int(found.shifts.min()) if found.shifts.size else _BITS,
    )


class Range(NamedTuple):
    """The range of a quantized result: its zero point, the bounds of its activation, its type."""

    zero: int
    low: int
    high: int
    dtype: DType


def result_range(n: Node, activation: str = "NONE") -> Range:
    """The range of the first result with an activation."""
    dtype, found = n.out_dtype(), n.out_quantization()
    low, high = int(dtype.min_value), int(dtype.max_value)
    bounds: dict[str, tuple[float | None, float | None]] = {
        "NONE": (None, None),
        "RELU": (0.0, None),
        "RELU6": (0.0, 6.0),
        "RELU_N1_TO_1": (-1.0, 1.0),
    }
    if activation not in bounds:
        raise UserError(f"the activation {activation} is not for quantized tensors")
    least, most = bounds[activation]
    if least is not None:
        low = max(low, int(quantized_array(np.array(least), found, None)))
    if most is not None:
        high = min(high, int(quantized_array(np.array(most), found, None)))
    return Range(found.zero, min(low, high), high, dtype)


# ---- real numbers -------------------------------------------------------------------------------


def quantized_array(real: Array, how: Quantization, dtype: DType | None) -> Array:
    """Real numbers as integers, halves rounded away from zero; clamped to a type if given."""
    stored = away_from_zero(real.astype(np.float32) / how.scale) + how.zero
    return stored if dtype is None else np.clip(stored, dtype.min_value, dtype.max_value)


def away_from_zero(x: Array) -> Array:
    """Rounded, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)


def real(n: Node, index: int) -> Value:
    """An operand as real numbers."""
    return dequantized(n, n[index], n.tensor(index).quantization)


def dequantized(n: Node, x: Value, how: Quantization | None) -> Value:
    """Integers as the real numbers that they represent."""
    if how is None or x.dtype.is_float:
        return x
    b = n.builder
    scales = how.scales.astype(np.float32)
    zeros = how.zeros.astype(x.dtype.numpy)
    if how.is_single:
        scales, zeros = scales.reshape(()), zeros.reshape(())
    zero = n.constant(zeros) if np.any(how.zeros) else None
    return b.dequantize(x, n.constant(scales), zero, axis=how.axis)


def quantized(n: Node, x: Value, index: int = 0) -> Value:
    """Real numbers as the integers of a result; as they are where it has none."""
    dtype = n.out_dtype(index)
    if dtype.is_float or n.out(index).quantization is None:
        return x
    b, how = n.builder, n.out_quantization(index)
    stored = b.add(b.round_away(b.div(x, n.scalar(how.scale, x))), n.scalar(how.zero, x))
    held = b.clip(stored, n.scalar(dtype.min_value, x), n.scalar(dtype.max_value, x))
    return b.cast(held, dtype=dtype)


# ---- tables -------------------------------------------------------------------------------------


def by_table(n: Node, x: Value, stored: Array) -> Value:
    """An element of a table for each byte: the first is that of the least byte."""
    b = n.builder
    table = n.constant(stored)
    if is_bytes(x) and is_bytes(table):
        return b.byte_table(x, table)
    index = b.cast(x, dtype="int32")
    if x.dtype.is_signed:
        index = b.add(index, n.scalar(-x.dtype.min_value, index))
    return b.take(table, index, mode="hold")


def all_bytes(x: Value) -> Array:
    """All values of a type of bytes, in order."""
    return np.arange(x.dtype.min_value, x.dtype.max_value + 1, dtype=np.int64)


def is_bytes(x: Value) -> bool:
    """Whether a tensor has so few values that a function of them is a table."""
    return x.dtype.is_integer and x.dtype.bits == 8


def real_bytes(x: Value, how: Quantization) -> Array:
    """The real numbers that all bytes represent, in float32."""
    return (all_bytes(x) - how.zero).astype(np.float32) * how.scale


def same_scale(how: Quantization | None, other: Quantization | None) -> bool:
    """Whether equal integers of two tensors represent equal numbers."""
    if how is None or other is None:
        return how is other
    return bool(
        how.scales.shape == other.scales.shape
        and np.all(how.scales == other.scales)
        and np.all(how.zeros == other.zeros)
    )


def rescaled(n: Node, x: Value, how: Quantization, dtype: DType, other: Quantization) -> Value:
    """Integers converted to another scale and zero point."""
    if x.dtype is dtype and same_scale(how, other):
        return x
    centred = n.builder.sub(n.builder.cast(x, dtype="int32"), n.constant(how.zero, "int32"))
    factor = float(how.scale) / float(other.scale)
    low, high = int(dtype.min_value), int(dtype.max_value)
    return scaled(n, centred, factor, zero=other.zero, low=low, high=high, dtype=dtype)
