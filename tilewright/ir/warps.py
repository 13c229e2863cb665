"""Products that the 32 threads of a warp compute together: C += A · B on tiles of 16 × 16.

Each thread holds eight sums of the tile, of float32, in memory of its own; both operands lie in
shared memory, by rows or by columns, and each thread names the first of eight neighbours that it
brings in. How elements and threads belong together is what `mma.sync` and `ldmatrix` want; all that
makes, compiles or executes such products asks here.
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
#: Neighbours that a thread names by the first.
NEIGHBOURS: Final = 8


@dataclass(frozen=True)
class WarpProduct:
    """C += A · B for operands of a type, each of which lies by columns or by rows."""

    dtype: DType
    a_by_columns: bool
    b_by_columns: bool

    @property
    def name(self) -> str:
        a, b = "km" if self.a_by_columns else "mk", "nk" if self.b_by_columns else "kn"
        return f"mma.{self.dtype.short}.{a}.{b}"

    def a_start(self, lane: Any) -> tuple[Any, Any]:
        """The first neighbour in A that a thread names, in A as it lies."""
        return _by_quarters(lane) if self.a_by_columns else _by_halves(lane)

    def b_start(self, lane: Any) -> tuple[Any, Any]:
        return _by_quarters(lane) if self.b_by_columns else _by_halves(lane)


def sum_place(row: Any, column: Any) -> tuple[Any, Any]:
    """The thread that holds a sum, and which of its own sums that is."""
    lane = row % 8 * 4 + column % 8 // 2
    return lane, column // 8 * 4 + row // 8 * 2 + column % 2


def _by_halves(lane: Any) -> tuple[Any, Any]:
    return lane % 16, lane // 16 * 8


def _by_quarters(lane: Any) -> tuple[Any, Any]:
    return lane // 16 * 8 + lane % 8, lane // 8 % 2 * 8


#: All of them, by the name of the intrinsic: addresses of the thread's sums, and in A and in B.
WARP_PRODUCTS: Final = {
    product.name: product
    for dtype in (float16, bfloat16)
    for product in (WarpProduct(dtype, a, b) for a in (False, True) for b in (False, True))
}
for _name in WARP_PRODUCTS:
    declare(_name, 3, "any", lambda _: int32, pure=False, doc="sums of a thread, A, B")
