"""Element types by the numbers that ONNX gives them."""

from __future__ import annotations

from typing import Final

from tilewright.graph import dtype_of
from tilewright.ir import DType
from tilewright.support.errors import UserError

_NAMES: Final = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
_UNSUPPORTED: Final = {0: "undefined", 14: "complex64", 15: "complex128"}
_BY_NUMBER: Final[dict[int, DType]] = {k: dtype_of(name) for k, name in _NAMES.items()}
_BY_DTYPE: Final[dict[DType, int]] = {d: k for k, d in _BY_NUMBER.items()}


def element_type(number: int, what: str) -> DType:
    """The element type of this number; `what` names its owner in messages."""
    found = _BY_NUMBER.get(number)
    if found is None:
        raise UserError(
            f"{what} has the element type {_UNSUPPORTED.get(number, number)}",
            reason="Tilewright has no such type",
        )
    return found


def onnx_number(dtype: DType) -> int:
    """The number that ONNX gives an element type."""
    return _BY_DTYPE[dtype]
