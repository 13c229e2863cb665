"""Attention with a running maximum: each warp goes through the keys of its rows by chunks.

for head, tile of rows in blocks:
    copy the rows
    for chunk of keys:                                         copies of keys and values run ahead
        S = rows · keys, with scale, mask, …                   in registers
        greatest[row] = max(greatest[row], S)                  four threads for each row
        total[row], acc[row] *= exp(greatest before - after)
        P = exp(S - greatest)
        total[row] += P
        acc += P · values
    result = acc / total …
"""

from __future__ import annotations

from tilewright.ir import OWNERS, STAGES, TILE_SIDE, Buffer, Expr, Var, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import stores_of
from tilewright.schedule.rules.gpu.attention.cut import Parts
from tilewright.schedule.rules.gpu.attention.registers import InRegisters
from tilewright.schedule.rules.gpu.grid import feeds_only
from tilewright.schedule.rules.gpu.warp_tiles import start_sums


class Online(InRegisters):
    def apply(self) -> None:
        s, found = self.s, self.found
        if found.after is None:
            self.found = found = found._replace(after=s.cache_write(found.second, 0, "local").name)
        s.factor_out(found.shares)
        first, second = self.products()
        greatest, total = (self.by_parts(name) for name in found.reductions)
        around = second.loops.grid
        s.compute_at(second.copies[0], second.loops.steps)
        chunks = s.merge(second.loops.steps, self._by_chunks(total, around))
        assert found.powers is not None
        s.compute_at(found.powers, chunks)
        finding = self._by_chunks(greatest, around)
        grid = s.merge(first.loops.grid, around)
        earlier = s.merge(first.loops.steps, finding)
        s.bind(grid, "blockIdx.x")
        first, second = self.started(first, first.loops.sums), self.started(second, chunks)
        starts = [
            s.decompose_reduction(r.parts, loop).name
            for r, loop in ((greatest, earlier), (total, chunks))
        ]
        steps, made = s.merge_online(earlier, chunks, greatest.joined)
        first, second = (
            side._replace(loops=side.loops._replace(steps=steps)) for side in (first, second)
        )
        begin, before, shift, growth, *scaled = (block.name for block in made)
        for side in (first, second):
            self.by_threads(side, grid)
        for name in scaled:
            if (
                stores_of(s.block_of(name))[0].buffer
                is stores_of(s.block_of(second.name))[0].buffer
            ):
                start_sums(s, second.name, name, second.tile, steps)
            else:
                self._by_owners_of_rows(name, steps)
        for r, start, around in ((greatest, starts[0], steps), (total, starts[1], grid)):
            self._by_owners_of_rows(start, grid)
            self._by_owners_of_rows(r.home, around)
            self._lay_out_parts(r.parts, self._by_owners_of_rows(r.parts, steps))
            for name in (r.home, r.joined):
                s.set_scope(name, 0, "shared")
        for name in (before, shift, growth):
            s.set_scope(name, 0, "shared")
        joined = self.inside(greatest.joined, steps)[0]
        for name in (shift, growth):
            joined = s.merge(joined, self.inside(name, steps)[0])
        for name, around in ((begin, grid), (before, steps), (total.joined, grid)):
            self.by_rows(name, around)
        self.bind(joined)
        for loop in self.inside(greatest.joined, steps):
            if s.loop_of(loop).kind == "serial":
                s.unroll(loop)
        self.share_out(first, second, steps)
        for side in (first, second):
            self.by_instructions(side)
        s.annotate(steps, STAGES, self.plan.stages)

    @property
    def _warps(self) -> tuple[int, ...]:
        """How many warps have rows of their own, by groups and in each, or all of them."""
        down, over, are_groups = self.plan.warps
        return (down, over) if are_groups else (down,)

    def _written(self, name: str) -> Buffer:
        return stores_of(self.s.block_of(name))[0].buffer

    def _by_chunks(self, r: Parts, around: Loop) -> Loop:
        """A reduction along rows that goes on from chunk to chunk; gives the loop over these."""
        s = self.s
        for name in (r.joined, r.home, r.parts):
            s.compute_at(name, around)
        row, part, owner, pair = self.inside(r.parts, around)
        chunk, inside = s.split(part, None, self.plan.keys // (2 * OWNERS))
        s.reorder(chunk, row, owner, inside, pair)
        return chunk

    def _by_owners_of_rows(self, name: str, around: Loop) -> Var:
        """Four threads for each row (`ir.warps.sum_place`), which have two rows each; gives the
        variable of rows."""
        s, block = self.s, self.s.block_of(name)
        loops = self.inside(name, around)
        row, owner = (x for x in loops if feeds_only(block, x, "spatial"))
        bound = zip(block.iters, block.bindings, strict=True)
        (var,) = [it.var for it, binding in bound if row.var in free_vars(binding)]
        *warps, high, below = s.split(row, *self._warps, 2, TILE_SIDE // 2)
        rest = [x for x in loops if x not in (row, owner)]
        s.reorder(*warps, below, owner, high, *rest)
        for warp, axis in zip(warps, ("threadIdx.z", "threadIdx.y"), strict=False):
            s.bind(warp, axis)
        s.bind(s.fuse(below, owner), "threadIdx.x")
        for loop in (high, *rest):
            s.unroll(loop)
        return var

    def _lay_out_parts(self, name: str, var: Var) -> None:
        """Parts of rows by the threads that have them: buffer[…, tile, warp, thread, own]."""
        s, store = self.s, stores_of(self.s.block_of(name))[0]
        place = next(k for k, index in enumerate(store.indices) if index is var)

        def layout(*indices: Expr) -> tuple[Expr, ...]:
            row, owner = indices[place], indices[-1]
            others = [index for k, index in enumerate(indices[:-1]) if k != place]
            thread = row % (TILE_SIDE // 2) * OWNERS + owner
            number, warps = row // TILE_SIDE, list[Expr]()
            for count in reversed(self._warps):
                warps.insert(0, number % count)
                number = number // count
            return (*others, number, *warps, thread, row // (TILE_SIDE // 2) % 2)

        s.transform_layout(name, store.buffer, layout)
