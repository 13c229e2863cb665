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

from collections.abc import Sequence
from math import prod

from tilewright.ir import Buffer, Const, Expr, Iter, Var, const, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    constants_of,
    extent_of,
)
from tilewright.schedule.rules.chunks import (
    copy_tiles,
    evenly_cut,
    gather_tiles,
    tiles_that_fit,
    turn_rows,
)
from tilewright.schedule.rules.contraction_plan import (
    UNKNOWN,
    Plan,
    can_turn,
    copies_rows,
    count_of,
    turned_side,
)
from tilewright.schedule.rules.epilogue import place_epilogue, take_on
from tilewright.schedule.rules.padding import (
    join_pixels,
    padding_before,
    place_padding,
    strip_of,
)
from tilewright.schedule.rules.panels import pack_panels, tiles_in_a_panel
from tilewright.schedule.rules.tiles import (
    PARALLEL_CYCLES,
    steps_ahead,
)
from tilewright.schedule.rules.transpose import plain_tile
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Neighbouring elements of a row that a thread packs.
_RUN = 128
#: How much longer the busiest thread may take with chunks of rows than with parts of columns.
_UNEVEN = 1.03
#: The part of their time for which cores should at least have work.
_BUSY = 0.9


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
        self.work = prod(extent_of(it) or UNKNOWN for it in s.block_of(name).iters)
        #: Whether threads take parts of the columns rather than chunks of rows.
        self._by_columns = self._columns_are_even()

    def apply(self) -> None:
        s, plan = self.s, self.plan
        epilogue = take_on(s, self.name)
        packs = self._packs()
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
        self._place_packs(packs, chunk, panels)
        if self._strips:
            place_padding(s, pads, around[self._strips - 1], self.target)
            self._parallelize(around[: self._strips], [])
            join_pixels(s, pads, self.target)
        else:
            # What packs rows stands between their chunks and the columns.
            inside = [] if self._packs_in_chunks else [*column_outer, *strip, *row_outer]
            self._parallelize(around, [*part, *chunk, *inside])

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
        if not self._is_worth_threads() or width is None or len(c.columns) > 1:
            return False
        if not plan.pack_rows or plan.gathered or is_constant:
            return False
        tiles, panels = self._row_tiles(), -(-width // self.tile.columns)
        size = self._tiles_per_chunk(cores)
        apart = count_of([it for it in (*c.batch, *c.rows) if it is not plan.row])
        by_rows = -(-apart * -(-tiles // size) // cores) * size / (apart * tiles)
        by_columns = -(-panels // cores) / panels
        return by_rows > by_columns * _UNEVEN

    @property
    def _packs_in_chunks(self) -> bool:
        """Whether rows are packed by the thread that uses them."""
        c, gathered = self.plan.contraction, self.plan.gathered
        if gathered is not None:
            return gathered.are_shared(self.tile.rows)
        is_constant = c.a.buffer in constants_of(self.s.function)
        return self.plan.pack_rows and not is_constant and not self._by_columns

    def _cut_parts(self, columns: list[Loop]) -> list[Loop]:
        """The loop over the threads' parts of the columns; `columns` then runs within a part."""
        if not self._by_columns:
            return []
        part, columns[-1] = self.s.split(columns[-1], self.target.cores, None)
        return [part]

    def _cut_panels(self, columns: list[Loop], chunk: list[Loop]) -> Loop | None:
        """The loop over panels of columns that are packed one at a time; `columns` then ends with
        that over the tiles of a panel."""
        if not self.plan.pack_columns or not self._meet_once(chunk):
            return None
        tiles = self.s.loop_of(columns[-1]).extent
        if self._by_columns and (not isinstance(tiles, Const) or tiles.value % self._panel):
            return None
        columns[-1:] = self.s.split(columns[-1], None, self._panel)
        return columns[-2]

    @property
    def _panel(self) -> int:
        """Tiles of columns that are packed together."""
        b = self.plan.contraction.b
        # Constants are written from end to end: memory that is first touched so lies in order.
        if b.buffer in constants_of(self.s.function) or b.step(self.plan.column.var) != 1:
            return 1
        return tiles_in_a_panel(self.target, self.tile, b.buffer.dtype)

    def _meet_once(self, chunk: list[Loop]) -> bool:
        """Whether a tile of columns is used by a single chunk of rows, that is, at one time."""
        c = self.plan.contraction
        if c.b.buffer in constants_of(self.s.function) or len(c.columns) > 1 or len(c.rows) > 1:
            return False
        used = {v for i in c.b.indices for v in free_vars(i)}
        is_single = all(self.s.loop_of(loop).extent is const(1) for loop in chunk)
        return self.plan.pack_rows and is_single and all(it.var in used for it in c.batch)

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

    # ---- what comes before ----------------------------------------------------------------------

    def _packs(self) -> dict[str, str]:
        """Copies of the operands that are packed: the block that makes each."""
        c, made = self.plan.contraction, dict[str, str]()
        if self.plan.pack_columns:
            made["columns"] = self.s.cache_read(self.name, c.b.buffer).name
        if self.plan.gathered:
            made["rows"] = self._maker_of(c.a.buffer)
        elif self.plan.pack_rows:
            made["rows"] = self.s.cache_read(self.name, c.a.buffer).name
        return made

    def _maker_of(self, buffer: Buffer) -> str:
        """The block that makes an operand."""
        made = self.s.producers(self.name)
        return next(b.name for b in made if self.s.block_of(b).writes[0].buffer is buffer)

    def _place_packs(self, packs: dict[str, str], chunk: list[Loop], panels: Loop | None) -> None:
        """Rows are packed by the thread that uses them; columns once for all, by all threads, or
        in the loop over `panels` of them."""
        row = self.plan.row
        if self.plan.gathered is not None:
            self._gather(packs["rows"], chunk[-1])
        elif "rows" in packs and row is not None:
            loops = self.s.loops(packs["rows"])
            if self._packs_in_chunks:
                loops = self.s.compute_at(packs["rows"], chunk[-1])
            if copies_rows(self.plan, constants_of(self.s.function)):
                outer = copy_tiles(self.s, packs["rows"], loops, self.tile, self.target)
                if self._by_columns:
                    self._parallelize(outer, [])
            else:
                self._turn_rows(packs["rows"], loops)
        if "columns" in packs:
            self._pack_columns(packs["columns"], panels)

    def _gather(self, copy: str, chunk: Loop) -> None:
        """Rows are gathered by the thread that uses them, or all of them first, by all threads."""
        c, row = self.plan.contraction, self.plan.row
        assert row is not None
        axis = next(k for k, i in enumerate(c.a.indices) if row.var in free_vars(i))
        place = chunk if self._packs_in_chunks else None
        outer = gather_tiles(self.s, copy, axis, self.tile, place)
        if place is None:
            self._parallelize(outer, [])

    def _lay_out(self, copy: str, operand: Access, var: Var, width: int) -> int:
        """Let `width` neighbours along `var` lie side by side; gives the dimension of `var`."""
        axis = next(k for k, i in enumerate(operand.indices) if var in free_vars(i))

        def blocked(*indices: Expr) -> tuple[Expr, ...]:
            rest = [i for k, i in enumerate(indices) if k != axis]
            return (indices[axis] // width, *rest, indices[axis] % width)

        self.s.transform_layout(copy, 0, blocked)
        return axis

    def _turn_rows(self, copy: str, loops: Sequence[Loop]) -> None:
        """Let rows of a tile lie side by side."""
        assert self.plan.row is not None
        self._lay_out(copy, self.plan.contraction.a, self.plan.row.var, self.tile.rows)
        if self._by_columns:
            self._pack_all(copy, loops)
        else:
            self._pack_chunk(copy, loops)

    def _pack_chunk(self, copy: str, loops: Sequence[Loop]) -> None:
        """Pack the rows of a chunk, by squares where that is possible."""
        turned = self._turned(copy, loops)
        if turned is not None:
            depth, rows = turned
            # All squares of a tile at once: they share its lines.
            tiles, squares = self.s.split(rows, None, self.tile.rows // turned_side(self.tile))
            self.s.reorder(tiles, depth, squares)

    def _pack_all(self, copy: str, loops: Sequence[Loop]) -> None:
        """Pack all rows, by all threads: by squares, or each thread some steps of all rows."""
        turned = self._turned(copy, loops)
        if turned is not None:
            depth, rows = turned
            part, within = self.s.split(depth, None, _RUN // turned_side(self.tile))
            self.s.reorder(part, rows, within)
        else:
            part, within = self.s.split(loops[-1], self.target.cores, None)
            self.s.reorder(part, *loops[:-1], within)
        self.s.parallel(part)

    def _turned(self, copy: str, loops: Sequence[Loop]) -> tuple[Loop, Loop] | None:
        """Loops over the squares by which rows are packed, if they can be: along and across."""
        rows = None if self.plan.row is None else extent_of(self.plan.row)
        if rows is None or not can_turn(self.plan):
            return None
        dtype, side = self.plan.contraction.a.buffer.dtype, turned_side(self.tile)
        return turn_rows(self.s, copy, loops, rows, plain_tile(dtype, side, self.target))

    def _pack_columns(self, copy: str, panels: Loop | None) -> None:
        """Pack columns in the loop over `panels`, or all of them first."""
        operand, column = self.plan.contraction.b, self.plan.column.var
        loops = self.s.loops(copy) if panels is None else self.s.compute_at(copy, panels)
        axis = self._lay_out(copy, operand, column, self.tile.columns)
        along = free_vars(self.s.block_of(copy).bindings[axis])
        panel = pack_panels(self.s, copy, loops, along, self.tile, self._panel, self.target)
        if panel is not None and panels is None and self._is_worth_threads():
            self.s.parallel(panel)

    # ---- threads --------------------------------------------------------------------------------

    def _is_worth_threads(self) -> bool:
        in_a_cycle = self.target.fma_ports * self.tile.lanes
        return self.target.cores > 1 and self.work >= PARALLEL_CYCLES * in_a_cycle

    def _parallelize(self, first: list[Loop], then: list[Loop]) -> None:
        """Fuse loops, all of `first` and as many more as it takes to have work for every core."""
        if not self._is_worth_threads():
            return
        loops = [*first, *then]
        chosen, others = loops[: max(1, len(first))], loops[max(1, len(first)) :]
        for loop in others:
            if self._busy(chosen) >= _BUSY or not self.s.can("fuse", *chosen, loop):
                break
            chosen.append(loop)
        self.s.parallel(self.s.fuse(*chosen) if len(chosen) > 1 else chosen[0])

    def _busy(self, loops: Sequence[Loop]) -> float:
        """The part of their time that cores are busy with the iterations of some loops.

        A size that is known only when the program runs may well be one.
        """
        extents = [self.s.loop_of(loop).extent for loop in loops]
        count = prod(int(e.value) for e in extents if isinstance(e, Const))
        cores = self.target.cores
        return count / (-(-count // cores) * cores)
