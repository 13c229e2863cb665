"""Byte lookup tables on AArch64: vectors of elements are picked out of registers.

`tbl4` picks out of 64 bytes; `tbx4` leaves lanes with other indices unchanged, so that four
instructions pick out of 256.
"""

from __future__ import annotations

from typing import Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.instructions.tables import part_of_table, size_of_table
from tilewright.codegen.llvm.types import LLValue, i8, llvm, number
from tilewright.ir import Load
from tilewright.target import Target

#: Bytes of a register, and of the four registers that one instruction reads.
_LANES: Final = 16
_TAKEN: Final = 4 * _LANES
_VECTOR: Final = llvm.VectorType(i8, _LANES)


def takes(target: Target, node: Load) -> bool:
    """Whether elements of a table are looked up this way."""
    if target.arch != "aarch64" or not target.has("neon") or node.dtype.lanes % _LANES:
        return False
    size = size_of_table(node)
    return size > 0 and size % _TAKEN == 0


def look_up(cx: Context, node: Load, position: LLValue) -> LLValue:
    """The elements at `position`, which are all inside the table."""
    starts = range(0, size_of_table(node), _TAKEN)
    parts = [_part(cx, node, start) for start in starts]
    numbers = cx.builder.trunc(position, llvm.VectorType(i8, node.dtype.lanes))
    return joined(cx, [_picked(cx, parts, own) for own in parts_of(cx, numbers, _LANES)])


def _part(cx: Context, node: Load, start: int) -> list[LLValue]:
    """The 64 bytes of the table from `start` on, in registers."""
    return [part_of_table(cx, node, k, _VECTOR) for k in range(start, start + _TAKEN, _LANES)]


def _picked(cx: Context, parts: list[list[LLValue]], numbers: LLValue) -> LLValue:
    first, *others = parts
    found = _call(cx, "tbl4", [*first, numbers])
    for k, part in enumerate(others, 1):
        own = cx.builder.sub(numbers, number(k * _TAKEN, _VECTOR))
        found = _call(cx, "tbx4", [found, *part, own])
    return found


def _call(cx: Context, name: str, args: list[LLValue]) -> LLValue:
    return cx.intrinsic(f"llvm.aarch64.neon.{name}", _VECTOR, args, [_VECTOR])
