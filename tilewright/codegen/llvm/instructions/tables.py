"""Tables of bytes of which vectors of elements are picked out of registers, by whatever
instructions there are."""

from __future__ import annotations

from typing import Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.types import LLType, LLValue, i8, i32, llvm
from tilewright.ir import Const, Load

#: Elements of the largest table: numbers are bytes.
_MOST: Final = 256


def size_of_table(node: Load) -> int:
    """How many bytes a table has that lanes are looked up in; 0 where it is none."""
    buffer = node.buffer
    if node.mask is not None or buffer.dtype.bits != 8 or len(buffer.shape) != 1:
        return 0
    (size,) = buffer.shape
    fits = isinstance(size, Const) and 0 < size.value <= _MOST and buffer.is_compact
    return int(size.value) if fits and isinstance(size, Const) else 0


def part_of_table(cx: Context, node: Load, start: int, kind: LLType) -> LLValue:
    """Neighbouring bytes of the table, as a vector in a register."""
    base = cx.address(node.buffer)
    at = cx.builder.gep(base, [llvm.Constant(i32, start)], inbounds=True, source_etype=i8)
    loaded = cx.builder.load(at, typ=kind)
    loaded.align = 1
    cx.aliases.mark(loaded, node.buffer)
    return loaded
