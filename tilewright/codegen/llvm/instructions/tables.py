"""Byte lookup tables held in registers: what the architectures' lookups share."""

from __future__ import annotations

from typing import Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.types import LLType, LLValue, i8, i32, llvm
from tilewright.ir import Const, Load

#: Elements of the largest table, as indices are bytes.
_MOST: Final = 256


def size_of_table(node: Load) -> int:
    """The bytes of the table that a load looks up; 0 where the buffer is no such table."""
    buffer = node.buffer
    if node.mask is not None or buffer.dtype.bits != 8 or len(buffer.shape) != 1:
        return 0
    (size,) = buffer.shape
    fits = isinstance(size, Const) and 0 < size.value <= _MOST and buffer.is_compact
    return int(size.value) if fits and isinstance(size, Const) else 0


def part_of_table(cx: Context, node: Load, start: int, kind: LLType) -> LLValue:
    """Consecutive bytes of the table, loaded as a vector."""
    base = cx.address(node.buffer)
    at = cx.builder.gep(base, [llvm.Constant(i32, start)], inbounds=True, source_etype=i8)
    loaded = cx.builder.load(at, typ=kind)
    loaded.align = 1
    cx.aliases.mark(loaded, node.buffer)
    return loaded
