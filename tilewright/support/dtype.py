"""Element types: the type of one scalar (or one short vector of scalars).

A `DType` is interned, so equal types are the same object and compare by identity. Every type has
a long name (`float32`) for users and a short one (`f32`) for printed IR; both are accepted
everywhere.

Types that `is_storage_only` (float8, float4, int4, int2 and kin) can be kept in buffers and
converted, but not computed with: arithmetic happens in the type they are cast to.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from tilewright.support.errors import UserError

Kind = Literal["bool", "int", "uint", "float"]


class FloatFormat(NamedTuple):
    """How a floating-point type uses its bits."""

    exponent: int
    mantissa: int
    bias: int
    has_infinity: bool = True
    has_nan: bool = True
    signed: bool = True


_FLOATS: dict[str, tuple[str, int, FloatFormat]] = {
    "float64": ("f64", 64, FloatFormat(11, 52, 1023)),
    "float32": ("f32", 32, FloatFormat(8, 23, 127)),
    "float16": ("f16", 16, FloatFormat(5, 10, 15)),
    "bfloat16": ("bf16", 16, FloatFormat(8, 7, 127)),
    "float8_e4m3fn": ("f8e4m3fn", 8, FloatFormat(4, 3, 7, has_infinity=False)),
    "float8_e4m3fnuz": ("f8e4m3fnuz", 8, FloatFormat(4, 3, 8, has_infinity=False)),
    "float8_e5m2": ("f8e5m2", 8, FloatFormat(5, 2, 15)),
    "float8_e5m2fnuz": ("f8e5m2fnuz", 8, FloatFormat(5, 2, 16, has_infinity=False)),
    "float8_e8m0fnu": ("f8e8m0fnu", 8, FloatFormat(8, 0, 127, has_infinity=False, signed=False)),
    "float4_e2m1fn": ("f4e2m1fn", 4, FloatFormat(2, 1, 1, has_infinity=False, has_nan=False)),
}
_INTS: dict[str, tuple[str, int]] = {
    **{f"int{b}": (f"i{b}", b) for b in (64, 32, 16, 8, 4, 2)},
    **{f"uint{b}": (f"u{b}", b) for b in (64, 32, 16, 8, 4, 2)},
}
_LANES = re.compile(r"^(.+?)x(\d+)$")
_COMPUTE_FLOATS = {"float64", "float32", "float16", "bfloat16"}


class DType:
    """An element type; `DType.of` makes one from a name, a NumPy type or another `DType`."""

    __slots__ = (
        "_vectors",
        "bits",
        "float_format",
        "is_bool",
        "is_float",
        "is_integer",
        "is_vector",
        "kind",
        "lanes",
        "name",
        "scalar",
        "short",
    )

    name: str
    short: str
    kind: Kind
    bits: int
    lanes: int
    is_float: bool
    is_integer: bool
    is_bool: bool
    is_vector: bool
    scalar: DType
    float_format: FloatFormat | None

    def __init__(
        self,
        name: str,
        short: str,
        kind: Kind,
        bits: int,
        float_format: FloatFormat | None = None,
        scalar: DType | None = None,
        lanes: int = 1,
    ) -> None:
        self.name, self.short, self.kind, self.bits = name, short, kind, bits
        self.float_format, self.lanes = float_format, lanes
        self.scalar = scalar or self
        self._vectors: dict[int, DType] = {}
        # Attributes, since properties would take a noticeable part of every compilation.
        self.is_float, self.is_bool = kind == "float", kind == "bool"
        self.is_integer, self.is_vector = kind in ("int", "uint"), lanes > 1

    @staticmethod
    def of(value: object) -> DType:
        """The type that `value` names; a `UserError` lists the known names when there is none."""
        if isinstance(value, DType):
            return value
        if isinstance(value, str):
            return _by_name(value)
        name = _numpy_name(value)
        if name not in _NAMES:
            raise _unknown(str(value))
        return _NAMES[name]

    def with_lanes(self, lanes: int) -> DType:
        """The vector of `lanes` elements of this type; one lane is the scalar type itself."""
        scalar = self.scalar
        if lanes == 1:
            return scalar
        found = scalar._vectors.get(lanes)
        if found is None:
            found = scalar._vectors[lanes] = DType(
                f"{scalar.name}x{lanes}",
                f"{scalar.short}x{lanes}",
                scalar.kind,
                scalar.bits,
                scalar.float_format,
                scalar,
                lanes,
            )
        return found

    @property
    def is_signed(self) -> bool:
        return self.kind == "int" or (self.float_format is not None and self.float_format.signed)

    @property
    def is_storage_only(self) -> bool:
        """True for the types that convert but do not compute."""
        if self.is_float:
            return self.scalar.name not in _COMPUTE_FLOATS
        return self.bits < 8 and not self.is_bool

    @property
    def itemsize(self) -> int:
        """Bytes that one element takes in memory; types under a byte take one byte each."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type of the same layout (from `ml_dtypes` where NumPy has none)."""
        name = self.scalar.name
        if name in _NUMPY_NATIVE:
            return np.dtype(name)
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))

    @property
    def min_value(self) -> int | float:
        """The least finite value (minus infinity's neighbour for floats)."""
        if self.is_bool:
            return 0
        if self.is_integer:
            return -(1 << (self.bits - 1)) if self.kind == "int" else 0
        return -self.max_value if self.is_signed else 0.0

    @property
    def max_value(self) -> int | float:
        """The greatest finite value."""
        if self.is_bool:
            return 1
        if self.is_integer:
            return (1 << (self.bits - (self.kind == "int"))) - 1
        return _max_float(self)

    def __repr__(self) -> str:
        return self.short

    def __reduce__(self) -> tuple[Any, ...]:
        return (DType.of, (self.name,))


def _max_float(dtype: DType) -> float:
    import ml_dtypes

    return float(cast("Any", ml_dtypes).finfo(dtype.numpy).max)


_NUMPY_NATIVE = {"bool", "float64", "float32", "float16"} | {
    f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)
}
_NAMES: dict[str, DType] = {}
for _name, (_short, _bits, _format) in _FLOATS.items():
    _NAMES[_name] = _NAMES[_short] = DType(_name, _short, "float", _bits, _format)
for _name, (_short, _bits) in _INTS.items():
    _NAMES[_name] = _NAMES[_short] = DType(
        _name, _short, "uint" if _name.startswith("u") else "int", _bits
    )
_NAMES["bool"] = DType("bool", "bool", "bool", 1)


def _by_name(name: str) -> DType:
    found = _NAMES.get(name)
    if found is not None:
        return found
    lanes = _LANES.match(name)
    if lanes and lanes[1] in _NAMES:
        return _NAMES[lanes[1]].with_lanes(int(lanes[2]))
    raise _unknown(name)


def _numpy_name(value: object) -> str:
    try:
        return np.dtype(value).name  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError:
        return str(value)


def _unknown(name: str) -> UserError:
    known = sorted({d.name for d in _NAMES.values()})
    return UserError(
        f"unknown element type {name!r}",
        remedy=f"use one of {', '.join(known)}",
    )


bool_ = _NAMES["bool"]
int8, int16, int32, int64 = (_NAMES[f"int{b}"] for b in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_NAMES[f"uint{b}"] for b in (8, 16, 32, 64))
float16, bfloat16 = _NAMES["float16"], _NAMES["bfloat16"]
float32, float64 = _NAMES["float32"], _NAMES["float64"]

#: The type of every index, extent and symbolic dimension.
index = int64
