"""How the IR's types look in LLVM.

In registers a bool is one bit; in memory it takes a byte, like every type under eight bits. Types that
LLVM need not know (bfloat16, float8 and kin) are carried as integers of their width: by the time code
is generated their conversions are spelled out in integer arithmetic.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir as llvm

from tilewright.ir import DType

LLType = Any
LLValue = Any
Builder = Any

pointer: LLType = llvm.PointerType()
i1: LLType = llvm.IntType(1)
i8: LLType = llvm.IntType(8)
i32: LLType = llvm.IntType(32)
i64: LLType = llvm.IntType(64)
void: LLType = llvm.VoidType()

_FLOATS: dict[str, LLType] = {
    "float16": llvm.HalfType(),
    "float32": llvm.FloatType(),
    "float64": llvm.DoubleType(),
}


def register_type(dtype: DType) -> LLType:
    """The type of a value of `dtype` in registers."""
    if dtype.is_bool:
        scalar = i1
    else:
        scalar = _FLOATS.get(dtype.scalar.name) or llvm.IntType(max(8, dtype.bits))
    return llvm.VectorType(scalar, dtype.lanes) if dtype.is_vector else scalar


def memory_type(dtype: DType) -> LLType:
    """The type of a value of `dtype` in memory."""
    if not dtype.is_bool:
        return register_type(dtype)
    return llvm.VectorType(i8, dtype.lanes) if dtype.is_vector else i8


def mangle(kind: LLType) -> str:
    """The suffix by which LLVM's overloaded intrinsics name a type."""
    if isinstance(kind, llvm.VectorType):
        return f"v{kind.count}{mangle(kind.element)}"
    if isinstance(kind, llvm.PointerType):
        return "p0"
    if isinstance(kind, llvm.IntType):
        return f"i{kind.width}"
    return {"half": "f16", "float": "f32", "double": "f64"}[str(kind)]
