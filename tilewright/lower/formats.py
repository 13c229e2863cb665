"""Small number formats as arithmetic: between their bits and float32.

A value of such a format is represented by the unsigned integer of its bits (one byte, or two).
`decode` and `encode` use plain float32 and integer operations, so that they vectorize everywhere
and call no library. Rounding is to nearest even; values that are too large become infinity, NaN or
the greatest value, the first of these that the format has (as in `ml_dtypes`).
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import (
    Const,
    DType,
    Expr,
    broadcast,
    call,
    cast,
    maximum,
    minimum,
    reinterpret,
    select,
)
from tilewright.target import Target

_F32, _F64, _U32 = DType.of("float32"), DType.of("float64"), DType.of("uint32")
_MANTISSA, _BIAS = 23, 127
_INFINITY, _QUIET_NAN = 0x7F800000, 0x7FC00000
_SIGN, _MAGNITUDE = 0x80000000, 0x7FFFFFFF
#: Integers up to this are exact in float64.
_EXACT: Final = 1 << 53


def is_narrow(dtype: DType) -> bool:
    """Whether values of the type are represented by bits: not all targets can compute with it."""
    return dtype.bits < 32 and (dtype.is_float or dtype.is_storage_only)


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of a narrow type."""
    return DType.of("uint16" if dtype.bits == 16 else "uint8").with_lanes(dtype.lanes)


class Formats:
    """Conversions; `native` are the formats for which a target has instructions."""

    def __init__(self, native: frozenset[str] = frozenset()) -> None:
        self._native = native

    def decode(self, bits: Expr, dtype: DType) -> Expr:
        """The value of `dtype` with these bits: float32, or an integer of one byte."""
        if dtype.is_integer:
            return _decode_integer(bits, dtype)
        if dtype.scalar.name in self._native:
            return cast(reinterpret(bits, dtype.scalar), _F32)
        if dtype.scalar.name == "bfloat16":
            return reinterpret(cast(bits, _U32) << 16, _F32)
        if dtype.scalar.name == "float8_e8m0fnu":
            return _decode_exponent(cast(bits, _U32))
        return _decode_float(cast(bits, _U32), dtype)

    def encode(self, value: Expr, dtype: DType) -> Expr:
        """The bits of `value`, a number of any wider type, converted to `dtype`."""
        if dtype.is_integer:
            return _encode_integer(value, dtype)
        single = _as_single(value)
        if dtype.scalar.name in self._native:
            return reinterpret(cast(single, dtype.scalar), carrier(dtype))
        if dtype.scalar.name == "bfloat16":
            return cast(_encode_bfloat16(single), carrier(dtype))
        if dtype.scalar.name == "float8_e8m0fnu":
            return cast(_encode_exponent(single), carrier(dtype))
        return cast(_encode_float(single, dtype), carrier(dtype))


def native_formats(target: Target) -> frozenset[str]:
    """The formats that `target` converts to and from float32 natively, exactly as defined here.

    AVX-512's instruction for bfloat16 is not among them: it treats subnormal numbers as zero.
    """
    has_half = {
        "aarch64": True,
        "nvptx64": True,
        "x86_64": target.has("f16c"),
        "riscv64": target.has("zfhmin"),
    }.get(target.arch, False)
    has_bfloat = target.arch == "aarch64" and target.has("bf16")
    return frozenset(n for n, has in (("float16", has_half), ("bfloat16", has_bfloat)) if has)


def fused_multiply_add(a: Expr, b: Expr, c: Expr) -> Expr:
    """`a * b + c` of decoded values, rounded only once: to the narrow format."""
    product, c = cast(a, _F64) * cast(b, _F64), cast(c, _F64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    above, below = error > 0.0, error < 0.0
    return _made_odd(total, select(total > 0.0, above, below), select(total > 0.0, below, above))


# ---- to float32, without rounding to nearest ----------------------------------------------------


def _as_single(value: Expr) -> Expr:
    """`value` as float32 rounded to odd, so that rounding it again gives the right result."""
    dtype = value.dtype
    if dtype.is_float:
        return value if dtype.bits == 32 else _single_to_odd(value)
    if dtype.bits <= 16:
        return cast(value, _F32)
    return _single_to_odd(cast(_within_double(value), _F64))


def _within_double(value: Expr) -> Expr:
    """An integer that float64 can hold, equal to `value` or on the same side of every tie."""
    if value.dtype.bits < 64:
        return value
    low = (1 << 11) - 1
    sticky = select((value & low) != 0, _like(low + 1, value), _like(0, value))
    fits = value <= _EXACT
    if value.dtype.is_signed:
        fits = fits & (value >= -_EXACT)
    return select(fits, value, value - (value & low) | sticky)


def _single_to_odd(value: Expr) -> Expr:
    near = cast(value, _F32)
    back = call("abs", cast(near, _F64))
    exact = call("abs", value)
    return _made_odd(near, back < exact, back > exact)


def _made_odd(near: Expr, too_small: Expr, too_large: Expr) -> Expr:
    """`near` moved towards the true value by one unit, if its last bit is even."""
    word = reinterpret(near, f"uint{near.dtype.bits}")
    stepped = select(too_small, word + 1, select(too_large, word - 1, word))
    return reinterpret(select((word & 1) == 0, stepped, word), near.dtype.scalar)


# ---- integers under a byte ----------------------------------------------------------------------


def _decode_integer(bits: Expr, dtype: DType) -> Expr:
    unused = 8 - dtype.bits
    value = cast(bits, "int8") if dtype.is_signed else bits
    return (value << unused) >> unused


def _encode_integer(value: Expr, dtype: DType) -> Expr:
    byte = DType.of("int8" if dtype.is_signed else "uint8")
    held = cast(value, byte)
    if value.dtype.is_float:
        low, high = int(dtype.min_value), int(dtype.max_value)
        held = maximum(minimum(held, high), low)
    return cast(held, "uint8") & ((1 << dtype.bits) - 1)


# ---- floats -------------------------------------------------------------------------------------


def _decode_float(word: Expr, dtype: DType) -> Expr:
    layout = dtype.float_format
    assert layout is not None
    magnitude = word & ((1 << (layout.exponent + layout.mantissa)) - 1)
    number = (magnitude << (_MANTISSA - layout.mantissa)) + ((_BIAS - layout.bias) << _MANTISSA)
    # A subnormal decoded as a normal number has an extra leading one: subtract it.
    least = 2.0 ** (1 - layout.bias)
    subnormal = reinterpret(number + (1 << _MANTISSA), _F32) - least
    found = select(magnitude < (1 << layout.mantissa), reinterpret(subnormal, _U32), number)
    if layout.has_infinity:
        found = select(magnitude < _infinity(dtype), found, number | _INFINITY)
    elif layout.has_nan:
        found = select(_is_nan(word, magnitude, dtype), _like(_QUIET_NAN, word), found)
    sign = (word << (32 - dtype.bits)) & _SIGN
    return reinterpret(found | sign, _F32)


def _encode_float(value: Expr, dtype: DType) -> Expr:
    layout = dtype.float_format
    assert layout is not None
    word = reinterpret(value, _U32)
    magnitude = word & _MAGNITUDE
    shift = _MANTISSA - layout.mantissa
    normal = _round_off(magnitude, shift) - ((_BIAS - layout.bias) << layout.mantissa)
    # Adding a number whose last bit has the weight of the least subnormal rounds to that.
    magic = Const(2.0 ** (shift + 1 - layout.bias), _F32)
    subnormal = reinterpret(call("abs", value) + magic.value, _U32) - _bits(magic)
    smallest = Const(2.0 ** (1 - layout.bias), _F32)
    code = select(magnitude < _bits(smallest), subnormal, normal)
    sign = (word >> (32 - dtype.bits)) & (1 << (dtype.bits - 1))
    if _has_one_zero(dtype):
        return _with_one_zero(minimum(code, 1 << (dtype.bits - 1)), sign)
    return _with_specials(value, code, sign, dtype)


def _with_specials(value: Expr, code: Expr, sign: Expr, dtype: DType) -> Expr:
    """Limit `code` to infinity, NaN or the greatest value."""
    layout = dtype.float_format
    assert layout is not None
    is_nan = call("isnan", value)
    everything = (1 << (layout.exponent + layout.mantissa)) - 1
    if layout.has_infinity:
        quiet = _infinity(dtype) | (1 << (layout.mantissa - 1))
        code = select(is_nan, _like(quiet, code), minimum(code, _infinity(dtype)))
        return code | sign
    code = minimum(code, everything)
    if layout.has_nan:
        return code | sign
    # The format has no NaN; like `ml_dtypes`, use the zero of the opposite sign.
    return select(is_nan, sign ^ (1 << (dtype.bits - 1)), code | sign)


def _with_one_zero(code: Expr, sign: Expr) -> Expr:
    """The sign bit alone is NaN: neither zero nor NaN has a sign."""
    plain = (code == 0) | (code == 1 << 7)
    return select(plain, code, code | sign)


def _encode_bfloat16(value: Expr) -> Expr:
    word = reinterpret(value, _U32)
    return select(call("isnan", value), (word >> 16) | (1 << 6), _round_off(word, 16))


def _decode_exponent(word: Expr) -> Expr:
    """float8_e8m0fnu: a power of two; 0 is half the least normal float32, the last one is NaN."""
    number = select(word == 0, _like(1 << (_MANTISSA - 1), word), word << _MANTISSA)
    return reinterpret(select(word == 0xFF, _like(_QUIET_NAN, word), number), _F32)


def _encode_exponent(value: Expr) -> Expr:
    """Ties go up. Of the subnormals, only those up to the value of code 0 become 0."""
    word = reinterpret(value, _U32)
    half = 1 << (_MANTISSA - 1)
    code = (word + half) >> _MANTISSA
    code = select(word <= half, _like(0, word), code)
    # By bits: a comparison may treat the value of code 0, a denormal, as zero.
    is_positive = word - 1 < _INFINITY
    return select(is_positive, minimum(code, 0xFF), _like(0xFF, word))


def _round_off(word: Expr, shift: int) -> Expr:
    """`word` without its last bits, rounded to nearest, ties to even."""
    return (word + ((1 << (shift - 1)) - 1) + ((word >> shift) & 1)) >> shift


def _is_nan(word: Expr, magnitude: Expr, dtype: DType) -> Expr:
    if _has_one_zero(dtype):
        return (word & 0xFF) == 1 << 7
    return magnitude == (1 << (dtype.bits - 1)) - 1


def _has_one_zero(dtype: DType) -> bool:
    return dtype.scalar.name.endswith("fnuz")


def _infinity(dtype: DType) -> int:
    layout = dtype.float_format
    assert layout is not None
    return ((1 << layout.exponent) - 1) << layout.mantissa


def _bits(value: Const) -> int:
    import numpy as np

    return int(np.float32(value.value).view(np.uint32))


def _like(value: int, other: Expr) -> Expr:
    return broadcast(Const(value, other.dtype.scalar), other.dtype.lanes)
