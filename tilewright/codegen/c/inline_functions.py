"""Inline C functions for operations that C's operators leave undefined or lack.

A function is identified by a word and its types, as in `floordiv i32`, and named
`tw_floordiv_i32`. Each is defined for all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tilewright.codegen.c.types import c_type, unsigned
from tilewright.ir import DType

#: Identifies a function: a word, and short names of types.
Key = tuple[str, ...]


def inline_name(key: Key) -> str:
    return "tw_" + "_".join(key)


def inline_sources(keys: Iterable[Key]) -> str:
    """The definitions of these functions, sorted."""
    return "\n".join(_definition(key) for key in sorted(set(keys)))


def _definition(key: Key) -> str:
    word, *types = key
    head, body = _SOURCES[word](*map(DType.of, types))
    return f"static inline {head.replace('NAME', inline_name(key))} {{\n{body}\n}}\n"


def _two(make: Callable[[DType], str]) -> Callable[..., tuple[str, str]]:
    """A function of two operands and a result of one type."""

    def source(dtype: DType) -> tuple[str, str]:
        t = c_type(dtype)
        return f"{t} NAME({t} a, {t} b)", make(dtype)

    return source


def _one(make: Callable[[DType], str]) -> Callable[..., tuple[str, str]]:
    def source(dtype: DType) -> tuple[str, str]:
        t = c_type(dtype)
        return f"{t} NAME({t} a)", make(dtype)

    return source


def _extreme(compare: str) -> Callable[[DType], str]:
    def body(dtype: DType) -> str:
        # Keep NaN.
        keeps = " || a != a" if dtype.is_float else ""
        return f"  return a {compare} b{keeps} ? a : b;"

    return body


def _division(floors: bool, remains: bool) -> Callable[[DType], str]:
    """Division by 0 gives 0, by -1 negates: C leaves the first and overflow undefined."""

    def body(dtype: DType) -> str:
        t, u = c_type(dtype), unsigned(dtype)
        lines = ["  if (b == 0) return 0;"]
        if not dtype.is_signed:
            return "\n".join([*lines, f"  return ({t})(a {'%' if remains else '/'} b);"])
        by_minus_one = "0" if remains else f"({t})(({u})0 - ({u})a)"
        lines.append(f"  if (b == -1) return {by_minus_one};")
        result = "a % b" if remains else "a / b"
        if floors:
            lines.append("  const bool inexact = a % b != 0 && (a < 0) != (b < 0);")
            result = "a % b + (inexact ? b : 0)" if remains else "a / b - inexact"
        return "\n".join([*lines, f"  return ({t})({result});"])

    return body


def _shift_left(dtype: DType) -> str:
    t, u = c_type(dtype), unsigned(dtype)
    return f"  return ({u})b < {dtype.bits} ? ({t})(({u})a << b) : 0;"


def _shift_right(dtype: DType) -> str:
    t, u, last = c_type(dtype), unsigned(dtype), dtype.bits - 1
    if not dtype.is_signed:
        return f"  return b < {dtype.bits} ? ({t})(a >> b) : 0;"
    # In C, shifting a negative number right is implementation-defined.
    return (
        f"  const int by = ({u})b < {dtype.bits} ? (int)b : {last};\n"
        f"  return ({t})(a < 0 ? ~(~a >> by) : a >> by);"
    )


def _saturating(source: DType, wanted: DType) -> tuple[str, str]:
    """Truncates; out-of-range values saturate, NaN becomes 0."""
    s, t, suffix = c_type(source), c_type(wanted), "f" if source.bits == 32 else ""
    low, power = int(wanted.min_value), wanted.bits - wanted.is_signed
    least = f"{t[:-2].upper()}_MIN" if low else "0"
    bound = f"-0x1p{power}{suffix}" if low else f"0.0{suffix}"
    body = [
        "  if (a != a) return 0;",
        f"  if (a <= {bound}) return {least};",
        f"  if (a >= 0x1p{power}{suffix}) return {t[:-2].upper()}_MAX;",
        f"  return ({t})a;",
    ]
    return f"{t} NAME({s} a)", "\n".join(body)


def _bits(source: DType, wanted: DType) -> tuple[str, str]:
    s, t = c_type(source), c_type(wanted)
    return f"{t} NAME({s} a)", f"  {t} b;\n  memcpy(&b, &a, sizeof b);\n  return b;"


def _magnitude(dtype: DType) -> str:
    t, u = c_type(dtype), unsigned(dtype)
    return f"  return ({t})(a < 0 ? ({u})0 - ({u})a : ({u})a);"


def _counting(loop: str) -> Callable[[DType], str]:
    def body(dtype: DType) -> str:
        t, bits = c_type(dtype), dtype.bits
        start = f"  uint64_t rest = (uint64_t)a & (UINT64_MAX >> {64 - bits});\n  int count = 0;"
        return f"{start}\n{loop.replace('BITS', str(bits))}\n  return ({t})count;"

    return body


_POPCOUNT: Final = "  for (; rest; rest &= rest - 1) ++count;"
_CLZ: Final = "  while (count < BITS && !(rest >> (BITS - 1 - count) & 1)) ++count;"
_CTZ: Final = "  while (count < BITS && !(rest >> count & 1)) ++count;"


def _mulhi(dtype: DType) -> str:
    t = c_type(dtype)
    if dtype.bits < 32 or (dtype.bits == 32 and dtype.is_signed):
        product = "(int64_t)a * b"
        return (
            f"  const int64_t product = {product};\n"
            f"  return ({t})((uint64_t)product >> {dtype.bits});"
        )
    if dtype.bits == 32:
        return f"  return ({t})((uint64_t)a * b >> 32);"
    lines = [
        "  const uint64_t x = (uint64_t)a, y = (uint64_t)b, low = UINT32_MAX;",
        "  const uint64_t middle = (x >> 32) * (y & low) + ((x & low) * (y & low) >> 32);",
        "  const uint64_t other = (x & low) * (y >> 32) + (middle & low);",
        "  uint64_t high = (x >> 32) * (y >> 32) + (middle >> 32) + (other >> 32);",
    ]
    if dtype.is_signed:
        lines += ["  if (a < 0) high -= y;", "  if (b < 0) high -= x;"]
    return "\n".join([*lines, f"  return ({t})high;"])


def _mulhi_doubled(dtype: DType) -> str:
    half, width = 1 << (dtype.bits - 2), dtype.bits - 1
    return f"  return ({c_type(dtype)})(((int64_t)a * b + {half}) >> {width});"


def _shift_nearest(dtype: DType) -> str:
    return f"  return ({c_type(dtype)})((a + ((INT64_C(1) << b) >> 1)) >> b);"


def _sigmoid(dtype: DType) -> str:
    t, f, one = (
        c_type(dtype),
        "f" if dtype.bits == 32 else "",
        "1.0f" if dtype.bits == 32 else "1.0",
    )
    return f"  const {t} e = exp{f}(-fabs{f}(a));\n  return (a < 0 ? e : {one}) / ({one} + e);"


def _rsqrt(dtype: DType) -> str:
    return "  return 1.0f / sqrtf(a);" if dtype.bits == 32 else "  return 1.0 / sqrt(a);"


_SOURCES: dict[str, Callable[..., tuple[str, str]]] = {
    "min": _two(_extreme("<")),
    "max": _two(_extreme(">")),
    "floordiv": _two(_division(floors=True, remains=False)),
    "floormod": _two(_division(floors=True, remains=True)),
    "truncdiv": _two(_division(floors=False, remains=False)),
    "truncmod": _two(_division(floors=False, remains=True)),
    "shl": _two(_shift_left),
    "shr": _two(_shift_right),
    "mulhi": _two(_mulhi),
    "mulhi_doubled": _two(_mulhi_doubled),
    "shift_nearest": _two(_shift_nearest),
    "convert": _saturating,
    "bits": _bits,
    "abs": _one(_magnitude),
    "popcount": _one(_counting(_POPCOUNT)),
    "clz": _one(_counting(_CLZ)),
    "ctz": _one(_counting(_CTZ)),
    "sigmoid": _one(_sigmoid),
    "coarse_sigmoid": _one(_sigmoid),
    "rsqrt": _one(_rsqrt),
}
