"""The layout of a kernel's buffers in shared memory.

Buffers follow each other; those of the two branches of a condition overlap, because a block runs
only one branch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.arith import knowing_nothing
from tilewright.codegen.convention import size_in_bytes
from tilewright.ir import (
    SWIZZLE_BYTES,
    Alloc,
    Buffer,
    Const,
    If,
    Stmt,
    child_stmts,
)
from tilewright.lower import group_operands
from tilewright.support.errors import UserError

#: Alignment in bytes: the widest access.
SHARED_ALIGNMENT: Final = 16


class SharedMemory(NamedTuple):
    """The byte offsets of buffers, their total size, and their alignment."""

    places: dict[Buffer, int]
    size: int
    alignment: int

    @classmethod
    def of(cls, body: Stmt) -> SharedMemory:
        """The shared memory of a kernel."""
        alignments = dict.fromkeys(group_operands(body), SWIZZLE_BYTES)
        places: dict[Buffer, int] = {}
        size = _place(body, 0, places, alignments)
        most = max(alignments.values(), default=SHARED_ALIGNMENT)
        return cls(places, size, most)


def bytes_of(buffer: Buffer) -> int:
    """The size of a buffer in a kernel, at least one byte."""
    size = size_in_bytes(buffer, knowing_nothing())
    if not isinstance(size, Const):
        raise UserError(
            f"cannot allocate {buffer.name} inside a kernel",
            reason=f"its size {size} is not a number",
            remedy="split its loops by numbers, or allocate it outside of the kernel",
        )
    return max(1, int(size.value))


def _place(stmt: Stmt, start: int, places: dict[Buffer, int], alignments: dict[Buffer, int]) -> int:
    """The end of the buffers allocated in a statement."""
    if isinstance(stmt, Alloc):
        for buffer in stmt.buffers:
            if buffer.scope == "shared":
                places[buffer] = _rounded(start, alignments.get(buffer, SHARED_ALIGNMENT))
                start = _rounded(places[buffer] + bytes_of(buffer), SHARED_ALIGNMENT)
    ends = [start]
    for child in child_stmts(stmt):
        begin = start if isinstance(stmt, If) else ends[-1]
        ends.append(_place(child, begin, places, alignments))
    return max(ends)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
