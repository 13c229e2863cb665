"""Attention with a running maximum: each warp loops over the keys of its rows in chunks.

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

from collections.abc import Callable
from typing import NamedTuple

from tilewright.ir import (
    KEEPS_PAIRS,
    OWNERS,
    STAGES,
    TILE_SIDE,
    Buffer,
    Expr,
    Load,
    Var,
    all_exprs,
    free_vars,
)
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import stores_of
from tilewright.schedule.rules.gpu.attention.cut import Side
from tilewright.schedule.rules.gpu.attention.registers import InRegisters
from tilewright.schedule.rules.gpu.grid import feeds_only
from tilewright.schedule.rules.gpu.operands import positions
from tilewright.schedule.rules.gpu.warp_tiles import start_sums


class RowParts(NamedTuple):
    """A reduction along rows: the parts in threads, and the block that joins them."""

    parts: str
    joined: str


class Merged(NamedTuple):
    """All blocks merged into one loop over tiles of rows and one over chunks of keys, with the
    blocks of the running maximum, named by what they write."""

    grid: Loop
    steps: Loop
    first: Side
    second: Side
    greatest: RowParts
    total: RowParts
    #: Blocks that initialise the parts of maximum and total, and the maximum.
    starts: tuple[str, ...]
    #: The maximum before a chunk, the value subtracted, and the factor by which sums are scaled.
    before: str
    shift: str
    growth: str
    #: The rescaled sums of the second product, and the rescaled parts of the total.
    scaled_sums: str
    scaled_total: str


class Online(InRegisters):
    def apply(self) -> None:
        found = self.found
        if found.after is None:
            after = self.s.cache_write(found.second, 0, "local").name
            self.found = found._replace(after=after)
        self.s.factor_out(found.shares)
        merged = self._merged()
        self._know_rows(merged)
        self._give_to_threads(merged)
        for side in (merged.first, merged.second):
            self.by_instructions(side)
        self.s.annotate(merged.steps, STAGES, self.plan.stages)

    def _merged(self) -> Merged:
        s, powers = self.s, self.found.powers
        assert powers is not None
        first, second = self.products()
        greatest, total = (self._parts_of(name) for name in self.found.reductions)
        around = second.loops.grid
        s.compute_at(second.copies[0], second.loops.steps)
        adding = s.merge(second.loops.steps, self._by_chunks(total, around))
        s.compute_at(powers, adding)
        finding = self._by_chunks(greatest, around)
        grid = s.merge(first.loops.grid, around)
        finding = s.merge(first.loops.steps, finding)
        if self.plan.tiles_each > 1:
            grid, blocks = s.split(grid, self.plan.tiles_each, None)
            s.reorder(blocks, grid)
            s.bind(blocks, "blockIdx.x")
            if self.plan.begins_early:
                s.annotate(grid, STAGES, 2)
            if self.plan.keeps_pairs:
                s.annotate(grid, KEEPS_PAIRS, 1)
        else:
            s.bind(grid, "blockIdx.x")
        first, second = self.started(first, first.loops.sums), self.started(second, adding)
        starts = [
            s.decompose_reduction(name, loop).name
            for name, loop in ((greatest.parts, finding), (total.parts, adding))
        ]
        steps, made = s.merge_online(finding, adding, greatest.joined)
        begin, before, shift, growth, *scaled = (block.name for block in made)
        sums = self._written(second.name)
        (scaled_sums,) = [name for name in scaled if self._written(name) is sums]
        (scaled_total,) = [name for name in scaled if name != scaled_sums]
        first, second = (
            side._replace(loops=side.loops._replace(steps=steps)) for side in (first, second)
        )
        return Merged(
            grid,
            steps,
            first,
            second,
            greatest,
            total,
            (*starts, begin),
            before,
            shift,
            growth,
            scaled_sums,
            scaled_total,
        )

    def _know_rows(self, m: Merged) -> None:
        """Replicate what is known of a row to each of the row's threads."""
        assert self.found.powers is not None
        sums = {m.scaled_sums: self._column(m.second, m.scaled_sums), m.scaled_total: None}
        self._replicate(m.growth, sums)
        self._replicate(m.shift, {m.growth: None, self.found.powers: self._key()})
        self._replicate(m.before, {m.growth: None})
        self._replicate(m.greatest.joined, {m.before: None, m.shift: None})
        self._replicate(m.total.joined, {m.second.home: self._column(m.second, m.second.home)})

    def _give_to_threads(self, m: Merged) -> None:
        for side in (m.first, m.second):
            self.by_threads(side, m.grid)
        start_sums(self.s, m.second.name, m.scaled_sums, m.second.tile, m.steps)
        for name in m.starts:
            self._by_owners_of_rows(name, m.grid)
        self._by_owners_of_rows(m.scaled_total, m.steps)
        self._lay_out_rows(m.total.joined, self._by_owners_of_rows(m.total.joined, m.grid))
        state = m.greatest.joined, m.before, m.shift, m.growth
        for name in (m.greatest.parts, *state, m.total.parts):
            self._lay_out_rows(name, self._by_owners_of_rows(name, m.steps))
        self.share_out(m.first, m.second, m.steps)

    # ---- rows -----------------------------------------------------------------------------------

    def _parts_of(self, name: str) -> RowParts:
        """Split a reduction along rows into parts, one for each of a row's threads."""
        s, block = self.s, self.s.block_of(name)
        (along,) = [x for x in s.loops(name) if not feeds_only(block, x, "spatial")]
        rank = len(stores_of(block)[0].indices)
        parts = s.rfactor(self.thread_of_row(along), rank).name
        s.set_scope(parts, 0, "local")
        return RowParts(parts, name)

    def _by_chunks(self, r: RowParts, around: Loop) -> Loop:
        """Continue a reduction along rows from chunk to chunk; gives the loop over chunks."""
        s = self.s
        for name in (r.joined, r.parts):
            s.compute_at(name, around)
        row, part, owner, pair = self.inside(r.parts, around)
        chunk, inside = s.split(part, None, self.plan.keys // (2 * OWNERS))
        s.reorder(chunk, row, owner, inside, pair)
        return chunk

    def _replicate(self, name: str, readers: dict[str, Expr | None]) -> None:
        """Give each thread of a row a copy of what is known of the row. `readers` maps each reader
        to the variable along which threads own pairs of elements; None for readers that are
        replicated too, which read their own copy."""

        def copy_for(reader: str, along: Expr | None) -> Callable[..., tuple[Expr]]:
            iters = [it.var for it in self.s.block_of(reader).iters]
            if along is None:
                return lambda *given: (given[-1],)
            place = next(k for k, var in enumerate(iters) if var is along)
            return lambda *given: (given[place] // 2 % OWNERS,)

        copies = {reader: copy_for(reader, along) for reader, along in readers.items()}
        self.s.replicate(name, OWNERS, copies)
        self.s.set_scope(name, 0, "local")

    def _key(self) -> Expr:
        """The variable of keys in the block that computes powers."""
        out, column = self.found.products[0].contraction.out, self.found.products[0].column.var
        place = next(k for k, index in enumerate(out.indices) if index is column)
        assert self.found.powers is not None
        return stores_of(self.s.block_of(self.found.powers))[0].indices[place]

    def _column(self, side: Side, reader: str) -> Expr:
        """The variable of columns in a block that reads the sums."""
        sums, (_, place) = self._written(side.name), positions(self.s, side.name, side.tile.product)
        loads = [e for e in all_exprs(self.s.block_of(reader).body) if isinstance(e, Load)]
        return next(e for e in loads if e.buffer is sums).indices[place]

    @property
    def _warps(self) -> tuple[int, ...]:
        """How many warps have different rows: groups and warps in each, or just warps."""
        down, over, are_groups = self.plan.warps
        return (down, over) if are_groups else (down,)

    def _written(self, name: str) -> Buffer:
        return stores_of(self.s.block_of(name))[0].buffer

    def _by_owners_of_rows(self, name: str, around: Loop) -> Var:
        """Four threads per row (`ir.warps.sum_place`), two rows each; gives the rows' variable."""
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

    def _lay_out_rows(self, name: str, var: Var) -> None:
        """Lay out rows' values by owning thread: buffer[…, tile, warps, thread, own]."""
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
