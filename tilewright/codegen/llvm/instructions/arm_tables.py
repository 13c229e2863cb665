"""Tables of bytes on AArch64: vectors of elements are picked out of registers.

One instruction picks out of 64 bytes; another one leaves lanes as they are whose numbers are not
its own, so that four of them pick out of 256.
"""

from __future__ import annotations

from typing import Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.types import LLValue, i8, i32, llvm, number
from tilewright.ir import Const, Load
from tilewright.target import Target

#: Bytes of a register, and of the registers that one instruction takes.
_LANES: Final = 16
_TAKEN: Final = 4 * _LANES
#: Elements of the largest table: numbers are bytes.
_MOST: Final = 256
_VECTOR: Final = llvm.VectorType(i8, _LANES)


def takes(target: Target, node: Load) -> bool:
    """Whether elements of a table are picked so."""
    if target.arch != "aarch64" or not target.has("neon"):
        return False
    buffer, lanes = node.buffer, node.dtype.lanes
    if node.mask is not None or buffer.dtype.bits != 8 or lanes % _LANES or len(buffer.shape) != 1:
        return False
    (size,) = buffer.shape
    fits = isinstance(size, Const) and size.value % _TAKEN == 0 and 0 < size.value <= _MOST
    return fits and buffer.is_compact


def look_up(cx: Context, node: Load, position: LLValue) -> LLValue:
    """The elements at `position`, which all lie inside of the table."""
    (size,) = node.buffer.shape
    assert isinstance(size, Const)
    parts = [_part(cx, node, start) for start in range(0, int(size.value), _TAKEN)]
    numbers = cx.builder.trunc(position, llvm.VectorType(i8, node.dtype.lanes))
    return joined(cx, [_picked(cx, parts, own) for own in parts_of(cx, numbers, _LANES)])


def _part(cx: Context, node: Load, start: int) -> list[LLValue]:
    """Neighbouring bytes of the table, in registers."""
    base = cx.address(node.buffer)
    made: list[LLValue] = []
    for k in range(start, start + _TAKEN, _LANES):
        at = cx.builder.gep(base, [llvm.Constant(i32, k)], inbounds=True, source_etype=i8)
        loaded = cx.builder.load(at, typ=_VECTOR)
        loaded.align = 1
        cx.aliases.mark(loaded, node.buffer)
        made.append(loaded)
    return made


def _picked(cx: Context, parts: list[list[LLValue]], numbers: LLValue) -> LLValue:
    first, *others = parts
    found = _call(cx, "tbl4", [*first, numbers])
    for k, part in enumerate(others, 1):
        own = cx.builder.sub(numbers, number(k * _TAKEN, _VECTOR))
        found = _call(cx, "tbx4", [found, *part, own])
    return found


def _call(cx: Context, name: str, args: list[LLValue]) -> LLValue:
    return cx.intrinsic(f"llvm.aarch64.neon.{name}", _VECTOR, args, [_VECTOR])
