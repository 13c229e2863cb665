"""What threads of a GPU do together: products C += A · B on tiles, and reads of others' registers.

A row of the table `FACTORS` gives the types of A, of B and of the sums. An instruction takes 32
bytes of each row along the summed axis: 16 steps of half precision, 32 of bytes and of floats of
eight bits, 8 of float32, of which products use the first ten bits of the fraction (TF32), where
targets allow it. Elements of 16 bits may be contiguous along the summed axis or along the other
one, all others along the summed axis only.

**By a warp** (`WarpProduct`), 16 × 16: each thread holds eight sums of the tile, in its local
memory; both operands are in shared memory, by rows or by columns, and each thread addresses the
first of the 16 contiguous bytes that it loads. In half precision, A can be held by the threads
instead: eight elements by each, distributed like sums. Elements are assigned to threads as
`mma.sync` and `ldmatrix` require.

**By a group of four warps** (`GroupProduct`), 64 rows and up to 256 columns: each warp holds the
sums of 16 rows as above, tile by tile, and may hold those of A in the same way. Other operands are
in shared memory in rows of 128 bytes (of the summed axis or of the other one), and all threads
address the first element. The pieces of 16 bytes in a row are permuted (`swizzled`), so that those
of eight rows are in different banks. This is `wgmma`, which is asynchronous: `products_start`
comes before a batch of products, `products_commit` after it, `products_wait` waits for all but the
latest, and `products_finish` comes before the sums are read.

**By two groups in turn**: one multiplies while the other computes. In place of a barrier, a group
signals that it has finished with the data in shared memory, and that its part of the next data is
there (`groups_arrive`); it waits for the other's signal before it accesses shared memory again
(`groups_await`). Arrivals are numbered, and awaited in order.

**By lanes** (`of_lane`): the value that another thread of the warp has in its registers.

All code that emits, compiles or executes such products uses these definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from tilewright.ir.intrinsics import declare
from tilewright.support.dtype import (
    DType,
    bfloat16,
    float16,
    float32,
    int8,
    int32,
    uint8,
)

_FLOAT8: Final = DType.of("float8_e4m3fn")
#: Threads that run in lockstep.
WARP: Final = 32
#: Rows and columns of a product by a warp.
TILE_SIDE: Final = 16
#: Sums that a thread holds.
SUMS: Final = TILE_SIDE * TILE_SIDE // WARP
#: Threads that hold the sums of a row together.
OWNERS: Final = 4
#: Bytes of a row that an instruction multiplies; bytes of a row in shared memory for groups of
#: warps; contiguous bytes that a thread addresses by the first, and that `swizzled` moves as one.
_STEP_BYTES: Final = 32
ROW_BYTES: Final = 128
EXCHANGED_BYTES: Final = 16
#: Elements that a thread addresses by the first, and elements of such a row, in half precision.
NEIGHBOURS: Final = EXCHANGED_BYTES // 2
PITCH: Final = ROW_BYTES // 2
#: Bytes after which the permutation of a row's pieces repeats.
SWIZZLE_BYTES: Final = 8 * ROW_BYTES


@dataclass(frozen=True)
class Factors:
    """The types of the factors A and B, which have the same width, and of the sums."""

    a: DType
    b: DType
    sums: DType

    @property
    def short(self) -> str:
        return self.a.short if self.a is self.b else f"{self.a.short}.{self.b.short}"

    @property
    def steps(self) -> int:
        """Steps along the summed axis that an instruction takes."""
        return _STEP_BYTES // self.a.itemsize

    @property
    def neighbours(self) -> int:
        """Contiguous elements that a thread addresses by the first."""
        return EXCHANGED_BYTES // self.a.itemsize

    @property
    def pitch(self) -> int:
        """Elements of a row of an operand of a group of warps."""
        return ROW_BYTES // self.a.itemsize

    @property
    def lie_freely(self) -> bool:
        """Whether operands may be contiguous along either axis, and A may be held by threads."""
        return self.a.itemsize == 2


#: The types that tensor instructions multiply.
FACTORS: Final = (
    *(Factors(dtype, dtype, float32) for dtype in (float16, bfloat16, _FLOAT8, float32)),
    *(Factors(a, b, int32) for a, b in product((int8, uint8), repeat=2)),
)


def find_factors(a: DType, b: DType, sums: DType) -> Factors | None:
    """The row of the table with these types."""
    return next((f for f in FACTORS if (f.a, f.b, f.sums) == (a, b, sums)), None)


@dataclass(frozen=True)
class WarpProduct:
    """C += A · B, where each operand is stored by columns or by rows; or A is held by threads
    (`a_is_own`)."""

    factors: Factors
    a_by_columns: bool
    b_by_columns: bool
    a_is_own: bool = False

    @property
    def name(self) -> str:
        a, b = "km" if self.a_by_columns else "mk", "nk" if self.b_by_columns else "kn"
        return f"mma.{self.factors.short}.{'own' if self.a_is_own else a}.{b}"

    def a_start(self, lane: Any) -> tuple[Any, Any]:
        """The first element of A that a thread addresses, in A as it is stored."""
        return self._by_quarters(lane) if self.a_by_columns else self._by_halves(lane)

    def b_start(self, lane: Any) -> tuple[Any, Any]:
        return self._by_quarters(lane) if self.b_by_columns else self._by_halves(lane)

    def _by_halves(self, lane: Any) -> tuple[Any, Any]:
        return lane % 16, lane // 16 * self.factors.neighbours

    def _by_quarters(self, lane: Any) -> tuple[Any, Any]:
        return lane // 16 * 8 + lane % 8, lane // 8 % 2 * self.factors.neighbours


def sum_place(row: Any, column: Any) -> tuple[Any, Any]:
    """The thread that holds a sum, and which of its own sums that is."""
    lane = row % 8 * OWNERS + column % 8 // 2
    return lane, column // 8 * 4 + row // 8 * 2 + column % 2


def _ways(factors: Factors) -> list[tuple[bool, bool, bool]]:
    """The possible layouts: whether A and B are stored by columns, and whether A is held by
    threads."""
    if not factors.lie_freely:
        return [(False, True, False)]
    return [
        (a, b, own)
        for b in (False, True)
        for a, own in ((False, False), (True, False), (False, True))
    ]


#: By the name of the intrinsic, which takes addresses of the thread's sums, and in A and in B.
WARP_PRODUCTS: Final = {
    made.name: made
    for factors in FACTORS
    for made in (WarpProduct(factors, *way) for way in _ways(factors))
}
for _name in WARP_PRODUCTS:
    declare(_name, 3, "any", lambda _: int32, pure=False, doc="sums of a thread, A, B")

#: Warps that execute `wgmma`, the rows of all of them, and possible numbers of columns.
GROUP: Final = 4
GROUP_ROWS: Final = GROUP * TILE_SIDE
GROUP_COLUMNS: Final = (64, 128, 192, 256)


def swizzled(place: Any, itemsize: int) -> Any:
    """The position of an element that would be at `place` if rows were stored in plain order."""
    return place ^ (place // (ROW_BYTES // itemsize) % 8 * (EXCHANGED_BYTES // itemsize))


@dataclass(frozen=True)
class GroupProduct:
    """C += A · B, where each operand is stored by columns or by rows; or A is held by threads
    (`a_is_own`)."""

    factors: Factors
    columns: int
    a_by_columns: bool
    b_by_columns: bool
    a_is_own: bool = False

    @property
    def name(self) -> str:
        a, b = "km" if self.a_by_columns else "mk", "nk" if self.b_by_columns else "kn"
        a = "own" if self.a_is_own else a
        return f"wgmma.{self.factors.short}.n{self.columns}.{a}.{b}"

    @property
    def sums(self) -> int:
        """The number of sums that a thread holds."""
        return self.columns // TILE_SIDE * SUMS


#: By the name of the intrinsic, which takes addresses of the thread's sums, and of the first
#: elements of A and of B; for each of these the distance of rows, and that of blocks of such rows
#: (0 for operands that threads hold).
GROUP_PRODUCTS: Final = {
    made.name: made
    for factors in FACTORS
    for columns in GROUP_COLUMNS
    for made in (GroupProduct(factors, columns, *way) for way in _ways(factors))
}
for _name in GROUP_PRODUCTS:
    declare(_name, 7, "any", lambda _: int32, pure=False, doc="sums of a thread, A, B, strides")
declare("products_fence", 0, "any", lambda _: int32, pure=False, doc="they see what was stored")
declare("products_start", 0, "any", lambda _: int32, pure=False, doc="before products of a group")
declare("products_commit", 0, "any", lambda _: int32, pure=False, doc="what to wait for together")
declare("groups_arrive", 1, "any", lambda _: int32, pure=False, doc="done, for a numbered time")
declare(
    "groups_await", 1, "any", lambda _: int32, pure=False, doc="the other's arrival of a number"
)
declare("products_wait", 1, "any", lambda _: int32, pure=False, doc="for all but the latest")
declare(
    "products_finish",
    3,
    "any",
    lambda _: int32,
    pure=False,
    doc="products of sums, their number, how many of the latest go on",
)
declare(
    "of_lane",
    3,
    "any",
    lambda given: given[0],
    pure=False,
    doc="a value as that thread of the warp has it; so many neighbours all ask",
)
