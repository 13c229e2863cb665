"""How the IR's types map to LLVM's.

In registers a bool is one bit; in memory it takes a byte. Small formats (float8 and the like,
integers under a byte) have been lowered before code generation; float16 and bfloat16 only remain
where a target has instructions for them: see `lower.narrow`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import llvmlite.ir

from tilewright.ir import DType

# llvmlite is untyped: its values are `Any` from here on.
llvm: Any = llvmlite.ir

LLType = Any
LLValue = Any
Builder = Any


class _BFloatType(llvmlite.ir.Type):
    """bfloat16, which llvmlite lacks."""

    null = "0.0"
    intrinsic_name = "bf16"

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloatType)

    def __hash__(self) -> int:
        return hash(_BFloatType)


pointer: LLType = llvm.PointerType()
i1: LLType = llvm.IntType(1)
i8: LLType = llvm.IntType(8)
i32: LLType = llvm.IntType(32)
i64: LLType = llvm.IntType(64)
void: LLType = llvm.VoidType()

_FLOATS: dict[str, LLType] = {
    "bfloat16": _BFloatType(),
    "float16": llvm.HalfType(),
    "float32": llvm.FloatType(),
    "float64": llvm.DoubleType(),
}


@lru_cache(maxsize=1024)  # each object turns itself into text anew
def register_type(dtype: DType) -> LLType:
    """The type of a value of `dtype` in registers."""
    scalar = i1 if dtype.is_bool else _FLOATS.get(dtype.scalar.name) or llvm.IntType(dtype.bits)
    return llvm.VectorType(scalar, dtype.lanes) if dtype.is_vector else scalar


def memory_type(dtype: DType) -> LLType:
    """The type of a value of `dtype` in memory."""
    if not dtype.is_bool:
        return register_type(dtype)
    return llvm.VectorType(i8, dtype.lanes) if dtype.is_vector else i8


@lru_cache(maxsize=1024)  # as above; a mask of 64 lanes consists of 65 objects
def lane_numbers(lanes: tuple[int, ...]) -> LLValue:
    """The mask of a shuffle: a constant vector of int32."""
    return llvm.Constant(llvm.VectorType(i32, len(lanes)), [llvm.Constant(i32, k) for k in lanes])


def mangle(kind: LLType) -> str:
    """The suffix for a type in the names of LLVM's overloaded intrinsics."""
    if isinstance(kind, llvm.VectorType):
        return f"v{kind.count}{mangle(kind.element)}"
    if isinstance(kind, llvm.PointerType):
        return "p0"
    if isinstance(kind, llvm.IntType):
        return f"i{kind.width}"
    return kind.intrinsic_name


def number(value: float, kind: Any) -> LLValue:
    """A constant of an LLVM type; repeated in all lanes of a vector type."""
    if isinstance(kind, llvm.VectorType):
        return llvm.Constant(kind, [llvm.Constant(kind.element, value)] * kind.count)
    return llvm.Constant(kind, value)
