"""Sums of products (matrix products, convolutions): a tile of the output in registers.

    for chunk of rows (parallel):
        pack the rows, if they lie apart
        for block of columns: for tile of rows:
            accumulators = 0
            for the reduction: accumulators += rows × columns        all in registers
            output = epilogue(accumulators)

Operands that would be read with long strides are packed into the order in which the tiles read
them. Where tiles of rows cannot be shared out evenly, all rows are packed first, and each thread
takes a part of the columns.
"""

from __future__ import annotations

from math import prod

from tilewright.ir import Const, Iter, Var
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import constants_of, extent_of
from tilewright.schedule.rules.chunks import evenly_cut, tiles_that_fit
from tilewright.schedule.rules.contraction_packing import Packing
from tilewright.schedule.rules.contraction_plan import UNKNOWN, Plan, count_of
from tilewright.schedule.rules.epilogue import place_epilogue, take_on
from tilewright.schedule.rules.padding import (
    join_pixels,
    padding_before,
    place_padding,
    strip_of,
)
from tilewright.schedule.rules.threads import Threads
from tilewright.schedule.rules.tiles import PARALLEL_CYCLES, READ_BYTES, steps_ahead
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: How much longer the busiest thread may take with chunks of rows than with parts of columns.
_UNEVEN = 1.03


def schedule_contraction(s: Schedule, name: str, plan: Plan, target: Target) -> None:
    """Cut the loops of the block `name` by `plan`, with whatever follows it fused in."""
    _Cut(s, name, plan, target).apply()


class _Cut:
    """The steps of one contraction's schedule."""

    def __init__(self, s: Schedule, name: str, plan: Plan, target: Target) -> None:
        self.s, self.name, self.plan, self.target = s, name, plan, target
        self.tile = plan.tile
        #: How many loops there are down to that over strips of rows; 0 where there are no strips.
        self._strips = 0
        is_worth = target.cores > 1 and self._cycles() >= PARALLEL_CYCLES
        self.threads = Threads(s, target, is_worth=is_worth)
        #: Whether threads take parts of the columns rather than chunks of rows.
        self._by_columns = self._columns_are_even()
        self.packing = Packing(s, name, plan, target, self.threads, by_columns=self._by_columns)

    def _cycles(self) -> float:
        """What it takes one thread: the products, or reading the columns where rows are few."""
        c = self.plan.contraction
        products = prod(extent_of(it) or UNKNOWN for it in self.s.block_of(self.name).iters)
        columns = prod(extent_of(it) or UNKNOWN for it in (*c.batch, *c.columns, *c.reduced))
        read = columns * c.b.buffer.dtype.itemsize / READ_BYTES
        return max(products / (self.target.fma_ports * self.tile.lanes), read)

    def apply(self) -> None:
        s, plan = self.s, self.plan
        epilogue = take_on(s, self.name)
        packs = self.packing.copies()
        iters = s.block_of(self.name).iters
        loops = {it.var: loop for it, loop in zip(iters, s.loops(self.name), strict=True)}
        chunk, row_outer, row_inner = self._cut_rows(loops)
        column_outer, column_inner = self._cut_columns(loops)
        reduced, unrolled = self._cut_depth([loops[it.var] for it in plan.contraction.reduced])
        tiled = {it.var for it in (plan.row, plan.column, plan.blocks) if it is not None}
        others = [it for it in iters if it.var not in tiled and it.kind == "spatial"]
        pads = padding_before(s, self.name)
        around, strip = self._cut_strips(others, pads, loops)
        part = self._cut_parts(column_outer)
        panels = self._cut_panels(column_outer, chunk)
        outer = [*around, *part, *chunk, *column_outer, *strip, *row_outer]
        s.reorder(*outer, *reduced, *unrolled, *row_inner, *column_inner)
        for loop in (*unrolled, *row_inner, *column_inner[:-1]):
            s.unroll(loop)
        s.vectorize(column_inner[-1])
        ahead = self._fetched_ahead()
        if ahead:
            s.annotate(reduced[-1], "prefetch", ahead)
        if outer:
            place_epilogue(s, epilogue, outer[-1], self.tile.lanes, self.target)
        self.packing.place(packs, chunk, panels)
        if self._strips:
            place_padding(s, pads, around[self._strips - 1], self.target)
            self.threads.share(around[: self._strips], [])
            join_pixels(s, pads, self.target)
        else:
            # What packs rows stands between their chunks and the columns.
            inside = [] if self.packing.in_chunks else [*column_outer, *strip, *row_outer]
            self.threads.share(around, [*part, *chunk, *inside])

    # ---- cutting --------------------------------------------------------------------------------

    def _cut_strips(
        self, others: list[Iter], pads: list[str], loops: dict[Var, Loop]
    ) -> tuple[list[Loop], list[Loop]]:
        """The other loops: those around the columns, and those within.

        Rows that come in several dimensions (an image) are taken by strips that fit L2: columns
        are then read once for each strip. Few columns are read again for each row instead.
        """
        own = [loops[it.var] for it in others]
        rows = {it.var for it in self.plan.contraction.rows}
        if not others or others[-1].var not in rows or self.plan.pack_rows:
            return own, []
        near = self._columns_are_near()
        size = strip_of(self.s, self.name, self.plan.contraction.a, others[-1], self.target)
        extent = extent_of(others[-1])
        if size is None or extent is None or (near and not pads):
            return own, []
        if size >= extent:
            return (own, []) if near else (own[:-1], own[-1:])
        self._strips = len(own)
        strip, within = self.s.split(own[-1], None, size)
        return ([*own[:-1], strip, within], []) if near else ([*own[:-1], strip], [within])

    def _columns_are_near(self) -> bool:
        """Whether all columns stay in the caches while rows pass by."""
        b = self.plan.contraction.b.buffer
        size = b.static_size()
        return size is not None and size * b.dtype.itemsize <= self.target.caches.l2 // 4

    def _cut_rows(self, loops: dict[Var, Loop]) -> tuple[list[Loop], list[Loop], list[Loop]]:
        """Loops over chunks of tiles of rows, over the tiles of a chunk, and within a tile."""
        if self.plan.row is None:
            return [], [], []
        loop = loops[self.plan.row.var]
        if not self.plan.pack_rows:
            outer, inner = self.s.split(loop, None, self.tile.rows)
            return [], [outer], [inner]
        gathered = self.plan.gathered
        if gathered is not None:
            size = gathered.tiles_per_chunk(self.tile.rows)
        else:
            size = self._tiles_per_chunk(1 if self._by_columns else self.target.cores)
        chunk, tiles, inner = self.s.split(loop, None, size, self.tile.rows)
        return [chunk], [tiles], [inner]

    def _tiles_per_chunk(self, cores: int) -> int:
        """Tiles of rows that are used together: what fits L2 beside the columns, evenly cut."""
        c = self.plan.contraction
        depth = count_of(c.reduced) * c.a.buffer.dtype.itemsize
        fit = tiles_that_fit(depth * self.tile.rows, self.target)
        return evenly_cut(self._row_tiles(), fit, cores)

    def _row_tiles(self) -> int:
        assert self.plan.row is not None
        return -(-(extent_of(self.plan.row) or 4096) // self.tile.rows)

    def _columns_are_even(self) -> bool:
        """Whether parts of the columns share the work out better than chunks of the rows."""
        plan, c, cores = self.plan, self.plan.contraction, self.target.cores
        width, is_constant = extent_of(plan.column), c.a.buffer in constants_of(self.s.function)
        if not self.threads.is_worth or width is None or len(c.columns) > 1:
            return False
        if not plan.pack_rows or plan.gathered or is_constant:
            return False
        tiles, panels = self._row_tiles(), -(-width // self.tile.columns)
        size = self._tiles_per_chunk(cores)
        apart = count_of([it for it in (*c.batch, *c.rows) if it is not plan.row])
        by_rows = -(-apart * -(-tiles // size) // cores) * size / (apart * tiles)
        by_columns = -(-panels // cores) / panels
        return by_rows > by_columns * _UNEVEN

    def _cut_parts(self, columns: list[Loop]) -> list[Loop]:
        """The loop over the threads' parts of the columns; `columns` then runs within a part."""
        if not self._by_columns:
            return []
        part, columns[-1] = self.s.split(columns[-1], self.target.cores, None)
        return [part]

    def _cut_panels(self, columns: list[Loop], chunk: list[Loop]) -> Loop | None:
        """The loop over panels of columns that are packed one at a time; `columns` then ends with
        that over the tiles of a panel."""
        if not self.plan.pack_columns or not self.packing.meet_once(chunk):
            return None
        tiles = self.s.loop_of(columns[-1]).extent
        if self._by_columns and (not isinstance(tiles, Const) or tiles.value % self.packing.panel):
            return None
        columns[-1:] = self.s.split(columns[-1], None, self.packing.panel)
        return columns[-2]

    def _cut_columns(self, loops: dict[Var, Loop]) -> tuple[list[Loop], list[Loop]]:
        """Loops over tiles of columns, and within a tile: blocks, vectors, lanes."""
        plan, lanes = self.plan, self.tile.lanes
        column = loops[plan.column.var]
        width = extent_of(plan.column)
        if plan.blocks is None or width is None or self.tile.columns < width:
            outer, middle, vector = self.s.split(column, None, self.tile.vectors, lanes)
            rest = [] if plan.blocks is None else [loops[plan.blocks.var]]
            return [*rest, outer], [middle, vector]
        blocks_outer, blocks_inner = self.s.split(
            loops[plan.blocks.var], None, self.tile.columns // width
        )
        if width == lanes:
            return [blocks_outer], [blocks_inner, column]
        middle, vector = self.s.split(column, None, lanes)
        return [blocks_outer], [blocks_inner, middle, vector]

    def _cut_depth(self, reduced: list[Loop]) -> tuple[list[Loop], list[Loop]]:
        """Where lanes hold neighbouring steps of the reduction, these are unrolled."""
        if self.tile.factors != "depth":
            return reduced, []
        outer, inner = self.s.split(reduced[-1], None, self.tile.lanes)
        return [*reduced[:-1], outer], [inner]

    def _fetched_ahead(self) -> int:
        """How many steps of the reduction ahead operands are asked for; 0 for not at all."""
        plan, c = self.plan, self.plan.contraction
        # Columns may come packed already: each step of a tile beside the next.
        are_packed = plan.pack_columns or c.b.step(c.reduced[-1].var) == self.tile.columns
        if not plan.pack_rows or not are_packed or plan.gathered:
            return 0
        return steps_ahead(self.target, self.tile, c.out.buffer.dtype, count_of(c.reduced))
