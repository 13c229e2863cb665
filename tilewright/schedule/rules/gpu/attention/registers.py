"""Attention with scores in registers: each warp has all keys of its rows.

Threads keep scores, powers and the second product's left operand where the first product leaves its
sums, which is where the second one needs them. Four threads of a warp share a row.
"""

from __future__ import annotations

from tilewright.ir import TILE_SIDE
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import stores_of
from tilewright.schedule.rules.gpu.attention.cut import Cut, Parts, Side
from tilewright.schedule.rules.gpu.operands import loops_of
from tilewright.schedule.rules.gpu.product_plan import Tile
from tilewright.schedule.rules.gpu.warp_tiles import WarpTile, by_threads, lay_out_own


class InRegisters(Cut):
    def place_powers(self, around: Loop) -> None:
        assert self.found.powers is not None
        self.s.compute_at(self.found.powers, around)

    def thread_of_row(self, along: Loop) -> Loop:
        """Of eight contiguous elements each thread has two (`ir.warps.sum_place`)."""
        return self.s.split(along, None, self.plan.threads_of_row, 2)[1]

    def loops_of_parts(self, loops: list[Loop]) -> tuple[Loop, ...]:
        s, (row, thread) = self.s, loops
        warp, high, below = s.split(row, self.plan.warps.down, 2, TILE_SIDE // 2)
        s.reorder(warp, below, thread, high)
        return warp, s.fuse(below, thread), high

    def reduce_by_threads(self, r: Parts, grid: Loop) -> None:
        s, (warp, lane, high) = self.s, r.loops
        for loop in [x for x in s.loops(r.parts) if x not in s.loops(r.home)]:
            s.unroll(loop)
        s.bind(warp, "threadIdx.z")
        s.bind(lane, "threadIdx.x")
        s.unroll(high)
        self.by_rows(r.joined, grid)

    def share_out(self, first: Side, second: Side, grid: Loop) -> None:
        scores, factors = self.found.products[0], second.tile.product
        assert self.found.powers is not None
        places = {index: k for k, index in enumerate(scores.contraction.out.indices)}
        sides = places[scores.row.var], places[scores.column.var]
        self._lay_out(first.home, sides, first.tile)
        self._by_owners(self.found.powers, sides, first.tile, grid)
        self._lay_out(self.found.powers, sides, first.tile)
        places = {index: k for k, index in enumerate(factors.contraction.a.indices)}
        sides = places[factors.row.var], places[factors.reduced[0].var]
        tile = WarpTile(factors, Tile(self.plan.rows, self.plan.keys), self.plan.warps)
        self._by_owners(second.copies[0], sides, tile, grid)
        self._lay_out(second.copies[0], sides, tile)

    def _by_owners(self, name: str, sides: tuple[int, int], tile: WarpTile, grid: Loop) -> None:
        """Compute elementwise blocks in the threads that own the elements."""
        s, indices = self.s, stores_of(self.s.block_of(name))[0].indices
        (row,), (column,) = (loops_of(s, name, indices[side], grid) for side in sides)
        s.vectorize(by_threads(s, row, column, tile))

    def _lay_out(self, name: str, sides: tuple[int, int], tile: WarpTile) -> None:
        self.s.set_scope(name, 0, "local")
        lay_out_own(self.s, name, stores_of(self.s.block_of(name))[0].buffer, sides, tile)
