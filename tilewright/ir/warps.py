"""What threads of a GPU do together: products C += A · B on tiles, and reads of others' memory.

What is multiplied is a row of a table (`FACTORS`): the types of A, of B and of the sums. An
instruction takes 32 bytes of each row along the sum: 16 steps of half precision, 32 of bytes and of
floats of eight bits, 8 of float32, of which products take the first ten bits of the fraction
(TF32), where targets allow it. Elements of 16 bits may lie along the sum or along the other side,
others along the sum alone.

**By a warp** (`WarpProduct`), 16 × 16: each thread holds eight sums of the tile, in memory of its
own; both operands lie in shared memory, by rows or by columns, and each thread names the first of
the neighbours that it brings in, 16 bytes of them. A can be the threads' own instead, in half
precision: each holds eight elements of it, as it would hold sums. How elements and threads belong
together is what `mma.sync` and `ldmatrix` want.

**By a group of four warps** (`GroupProduct`), 64 rows and up to 256 columns: each warp holds the
sums of 16 rows as above, tile by tile, and may hold those of A alike. Other operands lie in shared
memory in rows of 128 bytes (of the sum or of the other side), and all threads name the first one.
The sixteens of bytes of a row are exchanged (`swizzled`), so that those of eight rows lie in
different banks. That is `wgmma`, which goes on while threads do other work: `products_start` before
some of them, `products_commit` after, `products_wait` for all but the latest, and `products_finish`
before the sums are read.

**By two groups in turn**: one multiplies while the other computes. In place of a barrier, a group
says that it is done with what lies in shared memory, and that its part of what comes next is there
(`groups_arrive`); it awaits the other's arrival before it touches shared memory again
(`groups_await`). Arrivals are numbered, and awaited in order.

**By neighbours** (`of_lane`): what another thread of the warp has for a value. So threads read what
is in each other's registers.

All that makes, compiles or executes such products asks here.
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
#: Threads that hold the sums of a row.
OWNERS: Final = 4
#: Bytes of a row that an instruction multiplies, and that a row has in shared memory where groups
#: of warps take it; those that a thread names by the first, and that are exchanged as a whole.
_STEP_BYTES: Final = 32
ROW_BYTES: Final = 128
EXCHANGED_BYTES: Final = 16
#: Neighbours that a thread names, and elements of such a row, in half precision.
NEIGHBOURS: Final = EXCHANGED_BYTES // 2
PITCH: Final = ROW_BYTES // 2
#: After how many bytes the exchange of a row's sixteens repeats.
SWIZZLE_BYTES: Final = 8 * ROW_BYTES


@dataclass(frozen=True)
class Factors:
    """What is multiplied: the types of A and B, which are as wide, and of the sums."""

    a: DType
    b: DType
    sums: DType

    @property
    def short(self) -> str:
        return self.a.short if self.a is self.b else f"{self.a.short}.{self.b.short}"

    @property
    def steps(self) -> int:
        """Steps of the sum that an instruction takes."""
        return _STEP_BYTES // self.a.itemsize

    @property
    def neighbours(self) -> int:
        """Neighbours that a thread names by the first."""
        return EXCHANGED_BYTES // self.a.itemsize

    @property
    def pitch(self) -> int:
        """Elements of a row of an operand of a group of warps."""
        return ROW_BYTES // self.a.itemsize

    @property
    def lie_freely(self) -> bool:
        """Whether operands may lie along the other side than the sum, and A may be the threads'."""
        return self.a.itemsize == 2


#: What tensor instructions multiply.
FACTORS: Final = (
    *(Factors(dtype, dtype, float32) for dtype in (float16, bfloat16, _FLOAT8, float32)),
    *(Factors(a, b, int32) for a, b in product((int8, uint8), repeat=2)),
)


def find_factors(a: DType, b: DType, sums: DType) -> Factors | None:
    """The row of the table with these types."""
    return next((f for f in FACTORS if (f.a, f.b, f.sums) == (a, b, sums)), None)


@dataclass(frozen=True)
class WarpProduct:
    """C += A · B, where each operand lies by columns or by rows; or A is held by threads
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
        """The first neighbour in A that a thread names, in A as it lies."""
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
    """How operands of a product may lie: whether A and B lie by columns, and whether A is held by
    threads."""
    if not factors.lie_freely:
        return [(False, True, False)]
    return [
        (a, b, own)
        for b in (False, True)
        for a, own in ((False, False), (True, False), (False, True))
    ]


#: All of them, by the name of the intrinsic: addresses of the thread's sums, and in A and in B.
WARP_PRODUCTS: Final = {
    made.name: made
    for factors in FACTORS
    for made in (WarpProduct(factors, *way) for way in _ways(factors))
}
for _name in WARP_PRODUCTS:
    declare(_name, 3, "any", lambda _: int32, pure=False, doc="sums of a thread, A, B")

#: Warps that `wgmma` runs on, their rows together, and what a product can have for columns.
GROUP: Final = 4
GROUP_ROWS: Final = GROUP * TILE_SIDE
GROUP_COLUMNS: Final = (64, 128, 192, 256)


def swizzled(place: Any, itemsize: int) -> Any:
    """Where an element lies that would lie at `place` if rows simply followed each other."""
    return place ^ (place // (ROW_BYTES // itemsize) % 8 * (EXCHANGED_BYTES // itemsize))


@dataclass(frozen=True)
class GroupProduct:
    """C += A · B, where each operand lies by columns or by rows; or A is held by threads
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
        """How many a thread holds."""
        return self.columns // TILE_SIDE * SUMS


#: All of them, by the name of the intrinsic: addresses of the thread's sums, and of the first of A
#: and of B; for each of these how far rows lie apart, and how far blocks of such rows do (0
#: for what threads hold).
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
