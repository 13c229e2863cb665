"""Packing: copies of a contraction's operands in the order in which its tiles read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilewright.ir import Buffer, Expr, Var, const, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import Access, constants_of, extent_of
from tilewright.schedule.rules.products.chunks import copy_tiles, gather_tiles, transpose_rows
from tilewright.schedule.rules.products.contraction_plan import ContractionPlan
from tilewright.schedule.rules.products.panels import pack_panels, tiles_in_a_panel
from tilewright.schedule.rules.products.tiles import Tile
from tilewright.schedule.rules.threads import Threads
from tilewright.schedule.rules.transpose_plan import plain_tile
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Side below which squares are not worth transposing.
_LEAST_SIDE = 4
#: Contiguous elements of a row that one thread packs.
_RUN = 128


class Packing:
    """Which operands of a contraction are packed, and where."""

    def __init__(
        self, s: Schedule, name: str, plan: ContractionPlan, target: Target, threads: Threads
    ) -> None:
        self.s, self.name, self.plan, self.target = s, name, plan, target
        self.threads = threads
        self.tile = plan.tile

    @property
    def in_chunks(self) -> bool:
        """Whether rows are packed by the thread that uses them."""
        c, gathered = self.plan.contraction, self.plan.gathered
        if gathered is not None:
            return gathered.are_shared(self.tile.rows)
        is_constant = c.a.buffer in constants_of(self.s.function)
        return self.plan.pack_rows and not is_constant and not self.plan.share_columns

    def columns_are_used_once(self, chunk: list[Loop]) -> bool:
        """Whether each tile of columns is used by only one chunk of rows."""
        c = self.plan.contraction
        if c.b.buffer in constants_of(self.s.function) or len(c.columns) > 1 or len(c.rows) > 1:
            return False
        used = {v for i in c.b.indices for v in free_vars(i)}
        is_single = all(self.s.loop_of(loop).extent is const(1) for loop in chunk)
        return self.plan.pack_rows and is_single and all(it.var in used for it in c.batch)

    @property
    def panel(self) -> int:
        """Tiles of columns that are packed together."""
        b = self.plan.contraction.b
        # Constants are packed from end to end, so that their pages are first touched in order.
        if b.buffer in constants_of(self.s.function) or b.step(self.plan.column.var) != 1:
            return 1
        return tiles_in_a_panel(self.target, self.tile, b.buffer.dtype)

    def copies(self) -> dict[str, str]:
        """Create the copies of the operands that are packed; gives the block that makes each."""
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

    def place(self, packs: dict[str, str], chunk: list[Loop], panels: Loop | None) -> None:
        """Place the copies: rows are packed by the thread that uses them; columns once, by all
        threads, or panel by panel in the loop `panels`."""
        row = self.plan.row
        if self.plan.gathered is not None:
            self._gather(packs["rows"], chunk[-1])
        elif "rows" in packs and row is not None:
            loops = self.s.loops(packs["rows"])
            if self.in_chunks:
                loops = self.s.compute_at(packs["rows"], chunk[-1])
            if _copies_rows(self.plan, constants_of(self.s.function)):
                outer = copy_tiles(self.s, packs["rows"], loops, self.tile, self.target)
                if self.plan.share_columns:
                    self.threads.share(outer, [])
            else:
                self._transpose_rows(packs["rows"], loops)
        if "columns" in packs:
            self._pack_columns(packs["columns"], panels)

    def _gather(self, copy: str, chunk: Loop) -> None:
        """Gather rows in the thread that uses them, or all of them first, by all threads."""
        c, row = self.plan.contraction, self.plan.row
        assert row is not None
        axis = next(k for k, i in enumerate(c.a.indices) if row.var in free_vars(i))
        place = chunk if self.in_chunks else None
        outer = gather_tiles(self.s, copy, axis, self.tile, place)
        if place is None:
            self.threads.share(outer, [])

    def _lay_out(self, copy: str, operand: Access, var: Var, width: int) -> int:
        """Store `width` neighbours along `var` contiguously; gives the dimension of `var`."""
        axis = next(k for k, i in enumerate(operand.indices) if var in free_vars(i))

        def blocked(*indices: Expr) -> tuple[Expr, ...]:
            rest = [i for k, i in enumerate(indices) if k != axis]
            return (indices[axis] // width, *rest, indices[axis] % width)

        self.s.transform_layout(copy, 0, blocked)
        return axis

    def _transpose_rows(self, copy: str, loops: Sequence[Loop]) -> None:
        """Store the rows of a tile interleaved."""
        assert self.plan.row is not None
        self._lay_out(copy, self.plan.contraction.a, self.plan.row.var, self.tile.rows)
        if self.plan.share_columns:
            self._pack_all(copy, loops)
        else:
            self._pack_chunk(copy, loops)

    def _pack_chunk(self, copy: str, loops: Sequence[Loop]) -> None:
        """Pack the rows of a chunk, by transposed squares where possible."""
        transposed = self._transposed(copy, loops)
        if transposed is not None:
            depth, rows = transposed
            # Transpose all squares of a tile together: they share its cache lines.
            tiles, squares = self.s.split(rows, None, self.tile.rows // _square_side(self.tile))
            self.s.reorder(tiles, depth, squares)

    def _pack_all(self, copy: str, loops: Sequence[Loop]) -> None:
        """Pack all rows, by all threads: each takes some steps of the reduction for all rows."""
        transposed = self._transposed(copy, loops)
        if transposed is not None:
            depth, rows = transposed
            part, within = self.s.split(depth, None, _RUN // _square_side(self.tile))
            self.s.reorder(part, rows, within)
        else:
            part, within = self.s.split(loops[-1], self.target.cores, None)
            self.s.reorder(part, *loops[:-1], within)
        self.s.parallel(part)

    def _transposed(self, copy: str, loops: Sequence[Loop]) -> tuple[Loop, Loop] | None:
        """The loops over the squares that packing transposes, along and across, if it can."""
        rows = None if self.plan.row is None else extent_of(self.plan.row)
        if rows is None or not _can_transpose_rows(self.plan):
            return None
        dtype, side = self.plan.contraction.a.buffer.dtype, _square_side(self.tile)
        return transpose_rows(self.s, copy, loops, rows, plain_tile(dtype, side, self.target))

    def _pack_columns(self, copy: str, panels: Loop | None) -> None:
        """Pack columns in the loop `panels`, or all of them first."""
        operand, column = self.plan.contraction.b, self.plan.column.var
        loops = self.s.loops(copy) if panels is None else self.s.compute_at(copy, panels)
        axis = self._lay_out(copy, operand, column, self.tile.columns)
        along = free_vars(self.s.block_of(copy).bindings[axis])
        panel = pack_panels(self.s, copy, loops, along, self.tile, self.panel, self.target)
        if panel is not None and panels is None and self.threads.is_worth:
            self.s.parallel(panel)


def _can_transpose_rows(plan: ContractionPlan) -> bool:
    """Whether packing rows transposes a plain matrix, in squares large enough to pay."""
    return _is_plain(plan) and _square_side(plan.tile) >= _LEAST_SIDE


def _copies_rows(plan: ContractionPlan, constants: frozenset[Buffer]) -> bool:
    """Whether packing copies each row as a whole, without interleaving those of a tile.

    That is enough for instructions that broadcast a scalar from memory.
    """
    return (
        plan.tile.factors == "broadcast"
        and _is_plain(plan)
        and plan.contraction.a.buffer not in constants
    )


def _is_plain(plan: ContractionPlan) -> bool:
    """Whether the rows are those of a plain matrix."""
    c, depth = plan.contraction, plan.contraction.reduced[-1].var
    row, step = c.a.indices[-2:]
    if plan.row is None or row is not plan.row.var:
        return False
    # In parts of the reduction, a step's index also has the loop over parts.
    return step is depth or (plan.parts > 1 and c.a.step(depth) == 1)


def _square_side(tile: Tile) -> int:
    """Side of the squares that packing transposes, within the rows of a tile."""
    return gcd(tile.rows, tile.lanes)
