"""What threads of a GPU do together: products C += A · B on tiles, and reads of others' memory.

**By a warp** (`WarpProduct`), 16 × 16: each thread holds eight sums of the tile, of float32, in
memory of its own; both operands lie in shared memory, by rows or by columns, and each thread names
the first of eight neighbours that it brings in. A can be the threads' own instead: each holds eight
elements of it, as it would hold sums. How elements and threads belong together is what `mma.sync`
and `ldmatrix` want.

**By a group of four warps** (`GroupProduct`), 64 rows and up to 256 columns: each warp holds the
sums of 16 rows as above, tile by tile, and may hold those of A alike. Other operands lie in shared
memory in rows of 64 elements (of the sum or of the other side), and all threads name the first one.
The eights of a row are exchanged (`swizzled`), so that those of eight rows lie in different banks.
That is `wgmma`, which goes on while threads do other work: `products_start` before some of them,
`products_commit` after, `products_wait` for all but the latest, and `products_finish` before the
sums are read.

**By neighbours** (`of_lane`): what another thread of the warp has for a value. So threads read what
is in each other's registers.

All that makes, compiles or executes such products asks here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.intrinsics import declare
from tilewright.support.dtype import DType, bfloat16, float16, int32

#: Threads that run in lockstep.
WARP: Final = 32
#: Rows, columns and steps of a product.
TILE_SIDE: Final = 16
#: Sums that a thread holds.
SUMS: Final = TILE_SIDE * TILE_SIDE // WARP
#: Threads that hold the sums of a row.
OWNERS: Final = 4
#: Neighbours that a thread names by the first.
NEIGHBOURS: Final = 8


@dataclass(frozen=True)
class WarpProduct:
    """C += A · B for operands of a type, each of which lies by columns or by rows; or A is held by
    threads (`a_is_own`)."""

    dtype: DType
    a_by_columns: bool
    b_by_columns: bool
    a_is_own: bool = False

    @property
    def name(self) -> str:
        a, b = "km" if self.a_by_columns else "mk", "nk" if self.b_by_columns else "kn"
        return f"mma.{self.dtype.short}.{'own' if self.a_is_own else a}.{b}"

    def a_start(self, lane: Any) -> tuple[Any, Any]:
        """The first neighbour in A that a thread names, in A as it lies."""
        return _by_quarters(lane) if self.a_by_columns else _by_halves(lane)

    def b_start(self, lane: Any) -> tuple[Any, Any]:
        return _by_quarters(lane) if self.b_by_columns else _by_halves(lane)


def sum_place(row: Any, column: Any) -> tuple[Any, Any]:
    """The thread that holds a sum, and which of its own sums that is."""
    lane = row % 8 * OWNERS + column % 8 // 2
    return lane, column // 8 * 4 + row // 8 * 2 + column % 2


def _by_halves(lane: Any) -> tuple[Any, Any]:
    return lane % 16, lane // 16 * 8


def _by_quarters(lane: Any) -> tuple[Any, Any]:
    return lane // 16 * 8 + lane % 8, lane // 8 % 2 * 8


#: All of them, by the name of the intrinsic: addresses of the thread's sums, and in A and in B.
WARP_PRODUCTS: Final = {
    product.name: product
    for dtype in (float16, bfloat16)
    for b in (False, True)
    for product in (
        WarpProduct(dtype, False, b),
        WarpProduct(dtype, True, b),
        WarpProduct(dtype, False, b, a_is_own=True),
    )
}
for _name in WARP_PRODUCTS:
    declare(_name, 3, "any", lambda _: int32, pure=False, doc="sums of a thread, A, B")

#: Warps that `wgmma` runs on, their rows together, and what a product can have for columns.
GROUP: Final = 4
GROUP_ROWS: Final = GROUP * TILE_SIDE
GROUP_COLUMNS: Final = (64, 128, 192, 256)
#: Elements of a row of an operand, and after how many the exchange of eights repeats.
PITCH: Final = 64
SWIZZLE: Final = 8 * PITCH


def swizzled(place: Any) -> Any:
    """Where an element lies that would lie at `place` if rows simply followed each other."""
    return place ^ (place // PITCH % 8 * NEIGHBOURS)


@dataclass(frozen=True)
class GroupProduct:
    """C += A · B for operands of a type, each of which lies by columns or by rows; or A is held by
    threads (`a_is_own`)."""

    dtype: DType
    columns: int
    a_by_columns: bool
    b_by_columns: bool
    a_is_own: bool = False

    @property
    def name(self) -> str:
        a, b = "km" if self.a_by_columns else "mk", "nk" if self.b_by_columns else "kn"
        a = "own" if self.a_is_own else a
        return f"wgmma.{self.dtype.short}.n{self.columns}.{a}.{b}"

    @property
    def sums(self) -> int:
        """How many a thread holds."""
        return self.columns // TILE_SIDE * SUMS


#: All of them, by the name of the intrinsic: addresses of the thread's sums, and of the first of A
#: and of B; for each of these how far rows lie apart, and how far blocks of 64 columns do (0 for
#: what threads hold).
GROUP_PRODUCTS: Final = {
    product.name: product
    for dtype in (float16, bfloat16)
    for columns in GROUP_COLUMNS
    for b in (False, True)
    for product in (
        GroupProduct(dtype, columns, False, b),
        GroupProduct(dtype, columns, True, b),
        GroupProduct(dtype, columns, False, b, a_is_own=True),
    )
}
for _name in GROUP_PRODUCTS:
    declare(_name, 7, "any", lambda _: int32, pure=False, doc="sums of a thread, A, B, strides")
declare("products_fence", 0, "any", lambda _: int32, pure=False, doc="they see what was stored")
declare("products_start", 0, "any", lambda _: int32, pure=False, doc="before products of a group")
declare("products_commit", 0, "any", lambda _: int32, pure=False, doc="what to wait for together")
declare("products_wait", 1, "any", lambda _: int32, pure=False, doc="for all but the latest")
declare("products_finish", 2, "any", lambda _: int32, pure=False, doc="all: sums, their number")
declare(
    "of_lane",
    3,
    "any",
    lambda given: given[0],
    pure=False,
    doc="a value as that thread of the warp has it; so many neighbours all ask",
)
