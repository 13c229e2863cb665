"""Attention with scores in shared memory: all warps of a block share the keys of its rows."""

from __future__ import annotations

from typing import Final

from tilewright.ir import Const, Expr, const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import extent_of, stores_of
from tilewright.schedule.rules.gpu.attention.cut import Cut, Parts, Side

#: Banks of shared memory, and the offset between rows of scores in banks: threads of a warp that
#: write pairs of eight rows, or read some scores of each row, then have no bank conflicts.
_BANKS: Final = 32
_NEXT_ROW: Final = 8


class InShared(Cut):
    def place_powers(self, around: Loop) -> None:
        """Recompute powers where they are read: that costs less than keeping them."""
        if self.found.powers is not None:
            self.s.compute_inline(self.found.powers)

    def thread_of_row(self, along: Loop) -> Loop:
        return self.s.split(along, None, self.plan.threads_of_row)[1]

    def loops_of_parts(self, loops: list[Loop]) -> tuple[Loop, ...]:
        return tuple(loops)

    def reduce_by_threads(self, r: Parts, grid: Loop) -> None:
        s = self.s
        for loop in [x for x in s.loops(r.parts) if x not in s.loops(r.home)]:
            self.unroll(loop)
        self.by_rows(r.home, grid)
        self.by_rows(r.joined, grid)

    def share_out(self, first: Side, second: Side, grid: Loop) -> None:
        self._factors(second.copies[0], grid)
        self._lay_out_scores(first.home)

    def _factors(self, name: str, grid: Loop) -> None:
        """The second product's left operand, in its narrow type, by the threads of a row."""
        s = self.s
        row, key = self.inside(name, grid)
        pairs, thread, pair = s.split(key, None, self.plan.threads_of_row, 2)
        s.reorder(row, thread, pairs, pair)
        self.bind(s.fuse(row, thread))
        is_whole = (extent_of(self.found.products[0].column) or 1) % self.plan.steps == 0
        s.vectorize(pair) if is_whole else s.unroll(pair)
        self.unroll(pairs)

    def _lay_out_scores(self, home: str) -> None:
        """Lay out the scores by tiles of rows."""
        s, tile = self.s, self.plan.tiles[0]
        s.set_scope(home, 0, "shared")
        buffer = stores_of(s.block_of(home))[0].buffer
        p = self.found.products[0]
        places = {index: k for k, index in enumerate(p.contraction.out.indices)}
        row, key = places[p.row.var], places[p.column.var]
        extents = [int(e.value) if isinstance(e, Const) else 1 for e in buffer.shape]

        def layout(*indices: Expr) -> tuple[Expr, ...]:
            number: Expr = const(0)
            for k, index in enumerate(indices):
                if k == key:
                    continue
                size = tile.rows if k == row else 1
                number = number * -(-extents[k] // size) + index // size
            return number, indices[row] % tile.rows, indices[key]

        s.transform_layout(home, buffer, layout)
        s.storage_align(home, 0, 1, _BANKS, _NEXT_ROW)
