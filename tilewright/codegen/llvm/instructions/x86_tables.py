"""Byte lookup tables on x86-64 with AVX-512: vectors of elements are picked out of registers.

One instruction picks out of two registers: bytes with VBMI, else pairs of bytes, of which the
lowest bit of the index then selects one.
"""

from __future__ import annotations

from typing import Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.instructions.tables import part_of_table, size_of_table
from tilewright.codegen.llvm.types import LLType, LLValue, i8, lane_numbers, llvm, number
from tilewright.ir import Load
from tilewright.target import Target

#: Bytes of a register, and of the two that one instruction reads.
_REGISTER: Final = 64
_TAKEN: Final = 2 * _REGISTER
_BYTES: Final = llvm.VectorType(i8, _REGISTER)
_PAIRS: Final = llvm.VectorType(llvm.IntType(16), _REGISTER // 2)
_LANES: Final = (8, 16, 32, 64)


def takes(target: Target, node: Load) -> bool:
    """Whether elements of a table are looked up this way."""
    if target.arch != "x86_64" or not target.has("avx512bw") or node.dtype.lanes not in _LANES:
        return False
    size = size_of_table(node)
    return size > 0 and size % _TAKEN == 0


def look_up(cx: Context, node: Load, position: LLValue) -> LLValue:
    """The elements at `position`, which are all inside the table."""
    kind = _BYTES if cx.target.has("avx512vbmi") else _PAIRS
    starts = range(0, size_of_table(node), _REGISTER)
    table = [part_of_table(cx, node, start, kind) for start in starts]
    numbers = cx.builder.trunc(position, llvm.VectorType(i8, node.dtype.lanes))
    lanes = min(node.dtype.lanes, kind.count)
    pick = _of_bytes if kind is _BYTES else _of_pairs
    return joined(cx, [pick(cx, table, own) for own in parts_of(cx, numbers, lanes)])


def _of_bytes(cx: Context, table: list[LLValue], numbers: LLValue) -> LLValue:
    found = _picked(cx, "qi", table, _first(cx, numbers, _REGISTER), _TAKEN)
    return _first(cx, found, numbers.type.count)


def _of_pairs(cx: Context, table: list[LLValue], numbers: LLValue) -> LLValue:
    b, lanes = cx.builder, numbers.type.count
    words = b.zext(numbers, llvm.VectorType(_PAIRS.element, lanes))
    wide = _first(cx, words, _PAIRS.count)
    pairs = _picked(cx, "hi", table, b.lshr(wide, number(1, _PAIRS)), _TAKEN // 2)
    second = b.shl(b.and_(wide, number(1, _PAIRS)), number(3, _PAIRS))
    return b.trunc(_first(cx, b.lshr(pairs, second), lanes), llvm.VectorType(i8, lanes))


def _picked(cx: Context, name: str, table: list[LLValue], numbers: LLValue, most: int) -> LLValue:
    """Elements of two registers, or of four, between which the next bit of the index selects."""
    intrinsic, kind = f"llvm.x86.avx512.vpermi2var.{name}.512", numbers.type
    found = [
        cx.intrinsic(intrinsic, kind, [a, numbers, b], [])
        for a, b in zip(table[::2], table[1::2], strict=True)
    ]
    if len(found) == 1:
        return found[0]
    is_low = cx.builder.icmp_unsigned("<", numbers, number(most, kind))
    return cx.builder.select(is_low, *found)


def _first(cx: Context, vector: LLValue, lanes: int) -> LLValue:
    """The vector truncated or extended to this many lanes; added lanes are undefined."""
    own: LLType = vector.type
    if own.count == lanes:
        return vector
    nothing = llvm.Constant(own, llvm.Undefined)
    mask = lane_numbers(tuple(min(k, own.count) for k in range(lanes)))
    return cx.builder.shuffle_vector(vector, nothing, mask)
