"""Dequantizes 4-bit numbers to floats, on x86-64 with AVX-512, by a table in a register.

    f32(byte & 15) - 8.0
    f32(byte >> 4) - 8.0

One permute looks up 16 floats by the lowest four bits of 16 integers and ignores the bits above.
LLVM would extract the bits, convert and subtract.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.clamps import constant_side
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.types import LLValue, i32, llvm, number
from tilewright.ir import Binary, Cast, DType, Expr
from tilewright.target import Target

_FLOAT32, _UINT8 = DType.of("float32"), DType.of("uint8")
#: 32-bit lanes of a register, which is also the number of 4-bit values.
_LANES: Final = 16


class Nibbles(NamedTuple):
    """The low or high four bits of each byte as floats, minus `less`."""

    byte: Expr
    is_high: bool
    less: float


def as_nibbles(target: Target, node: Expr) -> Nibbles | None:
    """The 4-bit numbers that an expression unpacks, where the instruction can do it."""
    is_float = isinstance(node, Binary | Cast) and node.dtype.scalar is _FLOAT32
    if not is_float or node.dtype.lanes % _LANES:
        return None
    if target.arch != "x86_64" or not target.has("avx512f") or target.vector_bits < 32 * _LANES:
        return None
    less = 0.0
    if isinstance(node, Binary):
        found, node = constant_side(node) if node.op == "sub" else (None, node)
        if found is None:
            return None
        less = found
    part = node.a if isinstance(node, Cast) else None
    if not isinstance(part, Binary) or part.dtype.scalar is not _UINT8:
        return None
    bits, byte = constant_side(part)
    if (part.op, bits) not in (("bitand", 15), ("shr", 4)) or byte is part.b:
        return None
    return Nibbles(byte, part.op == "shr", less)


def to_floats(cx: Context, nibbles: Nibbles, byte: LLValue) -> LLValue:
    """The floats of a vector of bytes."""
    floats, integers = llvm.VectorType(llvm.FloatType(), _LANES), llvm.VectorType(i32, _LANES)
    entries = [llvm.Constant(llvm.FloatType(), k - nibbles.less) for k in range(_LANES)]
    table = llvm.Constant(floats, entries)
    lookup = cx.declare("llvm.x86.avx512.permvar.sf.512", floats, [floats, integers])
    parts: list[LLValue] = []
    for part in parts_of(cx, byte, _LANES):
        index = cx.builder.zext(part, integers)
        if nibbles.is_high:
            index = cx.builder.lshr(index, number(4, integers))
        parts.append(cx.builder.call(lookup, [table, index]))
    return joined(cx, parts)
