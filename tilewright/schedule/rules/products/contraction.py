"""Sums of products (matrix products, convolutions): a tile of the output in registers.

    for chunk of rows (parallel):
        pack the rows, if they are not neighbours
        for block of columns: for tile of rows:
            accumulators = 0
            for the reduction: accumulators += rows × columns        all in registers
            output = epilogue(accumulators)

Operands that would be read with long strides are packed in the order in which the tiles read them.
Where chunks of rows would not balance the threads, all rows are packed first, and each thread takes
a part of the columns.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Const, Iter, Var
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import extent_of
from tilewright.schedule.rules.epilogue import begin_epilogue, place_epilogue
from tilewright.schedule.rules.padding import (
    join_pixels,
    padding_before,
    place_padding,
    strip_of,
)
from tilewright.schedule.rules.products.chunks import even_parts
from tilewright.schedule.rules.products.contraction_packing import Packing
from tilewright.schedule.rules.products.contraction_plan import (
    ContractionPlan,
    TiledProduct,
    find_tiled,
    plan_contraction,
)
from tilewright.schedule.rules.reductions.long_columns import is_skinny
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.rules.threads import Threads
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _match(s: Schedule, name: str, target: Target) -> TiledProduct | None:
    """A product that fits tiles.

    With few rows it is memory-bound on reading the columns, and left to `long_columns`; except
    constant columns, which are packed in the order in which tiles read them and are read just as
    fast.
    """
    found = find_tiled(s, name)
    if found is None or found.has_constant_columns:
        return found
    return None if is_skinny(found.contraction, target) else found


def _schedule(s: Schedule, name: str, plan: ContractionPlan, target: Target) -> None:
    """Cut the loops of the block `name` by `plan`, and fuse its epilogue."""
    if plan.parts == 1:
        _Cut(s, name, plan, target).apply()
        return
    loops = {it.var: loop for it, loop in zip(s.block_of(name).iters, s.loops(name), strict=True)}
    part, _ = s.split(loops[plan.contraction.reduced[0].var], plan.parts, None)
    sums = s.rfactor(part, 0).name
    found = find_tiled(s, sums)
    assert found is not None
    _Cut(s, sums, replace(plan, **found.variables), target, total=name).apply()


CONTRACTION = Rule("contraction", _match, plan_contraction, _schedule)


class _Cut:
    """The steps of one contraction's schedule."""

    def __init__(
        self, s: Schedule, name: str, plan: ContractionPlan, target: Target, total: str = ""
    ) -> None:
        self.s, self.name, self.plan, self.target = s, name, plan, target
        #: The block that adds up the partial sums of the reduction's parts; empty with one part.
        self.total = total
        self.tile = plan.tile
        #: How many loops there are down to the one over strips of rows; 0 without strips.
        self._strips = 0
        self.threads = Threads(s, target, is_worth=plan.is_parallel)
        self.packing = Packing(s, name, plan, target, self.threads)

    def apply(self) -> None:
        s, plan = self.s, self.plan
        epilogue = begin_epilogue(s, self.name)
        packs = self.packing.copies()
        iters = s.block_of(self.name).iters
        loops = {it.var: loop for it, loop in zip(iters, s.loops(self.name), strict=True)}
        chunk, row_outer, row_inner = self._cut_rows(loops)
        column_outer, column_inner = self._cut_columns(loops)
        reduced, unrolled = self._cut_depth([loops[it.var] for it in plan.contraction.reduced])
        others = [it for it in iters if it.var not in plan.tiled and it.kind == "spatial"]
        pads = padding_before(s, self.name)
        around, strip = self._cut_strips(others, pads, loops)
        part = self._cut_parts(column_outer)
        panels = self._cut_panels(column_outer, chunk)
        tiles = [[*column_outer], [*strip, *row_outer]]
        if plan.order == "rows":
            tiles.reverse()
        inside = [loop for side in tiles for loop in side]
        outer = [*around, *part, *chunk, *inside]
        s.reorder(*outer, *reduced, *unrolled, *row_inner, *column_inner)
        for loop in (*unrolled, *row_inner, *column_inner[:-1]):
            s.unroll(loop)
        s.vectorize(column_inner[-1])
        if plan.prefetch:
            s.annotate(reduced[-1], "prefetch", -(-plan.prefetch // plan.unroll))
        if self.total:
            self._add_up(outer)
        elif outer:
            place_epilogue(s, epilogue, outer[-1], self.tile.lanes, self.target)
        self.packing.place(packs, chunk, panels)
        if self._strips:
            place_padding(s, pads, around[self._strips - 1], self.target)
            self.threads.share(around[: self._strips], [])
            join_pixels(s, pads, self.target)
        else:
            # The block that packs rows separates the loops over chunks from those over columns.
            inside = [] if self.packing.in_chunks else inside
            self.threads.share([] if self.total else around, [*part, *chunk, *inside])
        # Where this loop was fused into one over threads, there may be no next panel.
        if plan.prefetch_next and column_outer[-1] in s.loops(self.name):
            s.annotate(column_outer[-1], "prefetch_next", 1)

    def _add_up(self, outer: list[Loop]) -> None:
        """Add each tile's partial sum over a part of the reduction to its total."""
        s, plan = self.s, self.plan
        spatial = [it.var for it in s.block_of(self.name).iters if it.kind == "spatial"]
        loops = dict(zip(spatial, s.loops(self.total), strict=True))
        *others, parts = [v for v in spatial if v not in plan.tiled]
        chunk, row_outer, row_inner = self._cut_rows(loops)
        column_outer, column_inner = self._cut_columns(loops)
        part = self._cut_parts(column_outer)
        tiles = [column_outer, row_outer] if plan.order == "columns" else [row_outer, column_outer]
        around = [loops[v] for v in (*others, parts)]
        own = [*around, *part, *chunk, *tiles[0], *tiles[1]]
        s.reorder(*own, *row_inner, *column_inner)
        for loop in (*row_inner, *column_inner[:-1]):
            s.unroll(loop)
        s.vectorize(column_inner[-1])
        for first, second in zip(outer, own, strict=True):
            s.merge(first, second)

    # ---- cutting --------------------------------------------------------------------------------

    def _cut_strips(
        self, others: list[Iter], pads: list[str], loops: dict[Var, Loop]
    ) -> tuple[list[Loop], list[Loop]]:
        """The loops that carry no tile: those around the loops over columns, and those inside.

        Rows of several dimensions (an image) are computed in strips that fit L2, so that columns
        are read once per strip. Few columns stay in the caches anyway, and are read for each row.
        """
        own = [loops[it.var] for it in others]
        rows = {it.var for it in self.plan.contraction.rows}
        if not others or others[-1].var not in rows or self.plan.pack_rows:
            return own, []
        near = self._columns_are_near()
        quarter = self.target.caches.l2 // 4
        image = self.plan.contraction.a
        size = strip_of(self.s, self.name, image, others[-1], quarter, self.target)
        extent = extent_of(others[-1])
        if size is None or extent is None or (near and not pads):
            return own, []
        if size >= extent:
            return (own, []) if near else (own[:-1], own[-1:])
        self._strips = len(own)
        strip, within = self.s.split(own[-1], None, size)
        return ([*own[:-1], strip, within], []) if near else ([*own[:-1], strip], [within])

    def _columns_are_near(self) -> bool:
        """Whether all columns fit the caches while rows are streamed."""
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
        chunk, tiles, inner = self.s.split(loop, None, self.plan.chunk, self.tile.rows)
        return [chunk], [tiles], [inner]

    def _cut_parts(self, columns: list[Loop]) -> list[Loop]:
        """The loop over the threads' parts of the columns, split off the last of `columns`."""
        if not self.plan.share_columns:
            return []
        tiles, cores = self.s.loop_of(columns[-1]).extent, self.target.cores
        parts = even_parts(int(tiles.value), cores) if isinstance(tiles, Const) else cores
        part, columns[-1] = self.s.split(columns[-1], parts, None)
        return [part]

    def _cut_panels(self, columns: list[Loop], chunk: list[Loop]) -> Loop | None:
        """The loop over panels of columns that are packed one at a time; `columns` then ends with
        the loop over the tiles of a panel."""
        if not self.plan.pack_columns or not self.packing.columns_are_used_once(chunk):
            return None
        tiles, panel = self.s.loop_of(columns[-1]).extent, self.packing.panel
        is_even = isinstance(tiles, Const) and tiles.value % panel == 0
        if self.plan.share_columns and not is_even:
            return None
        columns[-1:] = self.s.split(columns[-1], None, panel)
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
        """Unroll neighbouring steps of the reduction where lanes hold them, or to spend fewer
        instructions on loop control: another thread may share the core's issue slots."""
        steps = self.tile.lanes if self.tile.factors == "depth" else self.plan.unroll
        if steps == 1:
            return reduced, []
        outer, inner = self.s.split(reduced[-1], None, steps)
        return [*reduced[:-1], outer], [inner]
