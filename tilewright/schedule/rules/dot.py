"""Sums of products of small types by the target's dot-product instructions.

    pack the columns: neighbours along the reduction side by side, one group of them in each lane
    for chunk of rows (parallel):
        pack the rows likewise
        for tile of columns: for tile of rows:
            accumulators = 0
            for the reduction, a group at a time: accumulators += groups of rows × groups of columns
            output = epilogue(accumulators)

Extents that the tiles do not divide are padded with zeros on the way into the packed operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.ir import Block, Const, Expr, Iter, Var
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import Dot, dots_for
from tilewright.schedule.rules.analysis import Access, Contraction, as_contraction, extent_of
from tilewright.schedule.rules.contraction import vectorize_tile
from tilewright.schedule.rules.packing import Packed, pack_operand, schedule_packing
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Below so many rows or columns, packing costs more than the instruction saves.
_WORTH_PACKING = 16
#: Multiply-adds that are worth waking another thread for (these are four times as fast as others).
_PARALLEL_WORTH = 400_000
_LOAD_PORTS, _LOAD_COST, _LOOP_COST = 2, 0.15, 1.0


@dataclass(frozen=True)
class DotPlan:
    """Which variables meet in the instruction, and how many of it make a tile."""

    dot: Dot
    row: Iter
    column: Iter
    depth: Iter
    #: Rows and columns of a tile.
    rows: int
    columns: int


def plan_dot(block: Block, target: Target) -> DotPlan | None:
    """A plan, or None where the block is no product for which the target has an instruction."""
    c = as_contraction(block)
    if c is None or len(c.rows) != 1 or len(c.columns) != 1 or len(c.reduced) != 1:
        return None
    (row,), (column,), (depth,) = c.rows, c.columns, c.reduced
    extents = [extent_of(it) for it in (row, column, depth)]
    if None in extents or min(e or 0 for e in extents[:2]) < _WORTH_PACKING:
        return None
    if c.out.step(column.var) != 1 or not _is_plain(c):
        return None
    found = dots_for(target, c.a.buffer.dtype, c.b.buffer.dtype, c.out.buffer.dtype)
    if not found:
        return None
    dot = found[0]
    rows, columns = _choose_tile(dot, target, extent_of(row) or 0, extent_of(column) or 0)
    return DotPlan(dot, row, column, depth, rows, columns)


def _is_plain(c: Contraction) -> bool:
    """Whether every index of the operands is a variable by itself."""
    accesses = (c.a, c.b, c.out)
    return all(isinstance(i, Var | Const) for access in accesses for i in access.indices)


def _choose_tile(dot: Dot, target: Target, rows: int, columns: int) -> tuple[int, int]:
    """The tile with the best predicted throughput whose accumulators fit the registers."""
    shapes = [
        (r, v)
        for r in range(1, 16 // dot.rows + 1)
        for v in range(1, 9)
        if _registers(dot, r, v) <= target.vector_registers
    ]
    r, v = max(shapes, key=lambda shape: _score(dot, target, *shape, rows, columns))
    return r * dot.rows, v * dot.columns


def _accumulators(dot: Dot, r: int, v: int) -> int:
    return r * v * (1 if dot.square else dot.rows)


def _registers(dot: Dot, r: int, v: int) -> int:
    return _accumulators(dot, r, v) + v + (1 if dot.rows == 1 else r)


def _score(dot: Dot, target: Target, r: int, v: int, rows: int, columns: int) -> float:
    work, loads = _accumulators(dot, r, v), r + v
    cycles = max(work / target.fma_ports, loads / _LOAD_PORTS, target.fma_latency)
    cycles += _LOAD_COST * loads + _LOOP_COST
    return work / cycles * _used(rows, r * dot.rows) * _used(columns, v * dot.columns)


def _used(extent: int, tile: int) -> float:
    return extent / (-(-extent // tile) * tile)


# ---- applying a plan ----------------------------------------------------------------------------


def schedule_dot(s: Schedule, name: str, plan: DotPlan, target: Target) -> None:
    """Cut the block `name` by `plan` and compute its tiles by the instruction."""
    _DotCut(s, name, plan, target).apply()


class _DotCut:
    """The steps of one schedule."""

    def __init__(self, s: Schedule, name: str, plan: DotPlan, target: Target) -> None:
        self.s, self.name, self.plan, self.dot, self.target = s, name, plan, plan.dot, target
        self.work = prod(extent_of(it) or 1 for it in s.block_of(name).iters)

    def apply(self) -> None:
        s, dot = self.s, self.dot
        epilogue = self._pad()
        rows, columns = self._pack()
        epilogue = epilogue or self._epilogue()
        if dot.square:
            self._lay_out_results()
        iters = s.block_of(self.name).iters
        loops = {it.var.name: loop for it, loop in zip(iters, s.loops(self.name), strict=True)}
        row, column, depth = (
            loops.pop(it.var.name) for it in (self.plan.row, self.plan.column, self.plan.depth)
        )
        others = list(loops.values())
        chunk, tiles, groups, i = self._cut_rows(row)
        panel, vectors, j = s.split(column, None, self.plan.columns // dot.columns, dot.columns)
        steps, k = s.split(depth, None, dot.depth)
        s.reorder(*others, chunk, panel, tiles, steps, groups, vectors, *i, j, k)
        self._start(s.decompose_reduction(self.name, steps).name)
        s.unroll(groups)
        s.unroll(vectors)
        self._place_epilogue(epilogue, tiles)
        self._place_rows(rows, chunk)
        self._place_columns(columns)
        s.tensorize((*i, j)[0], dot.name)
        self._parallelize([*others, chunk])

    # ---- operands --------------------------------------------------------------------------------

    def _pad(self) -> list[str]:
        """Round the extents up to whole tiles; gives what takes the results on, if that was done."""
        s, plan = self.s, self.plan
        wanted = {
            plan.row.var: plan.rows,
            plan.column.var: plan.columns,
            plan.depth.var: plan.dot.depth,
        }
        iters = s.block_of(self.name).iters
        factors = [wanted.get(it.var, 1) for it in iters]
        if not any((extent_of(it) or 0) % f for it, f in zip(iters, factors, strict=True)):
            return []
        s.pad(self.name, factors)
        return self._consumers_of_padded()

    def _consumers_of_padded(self) -> list[str]:
        s = self.s
        out = s.block_of(self.name).writes[0].buffer
        if out in s.function.buffers:
            return []
        s.set_scope(self.name, out, "local")
        for crop in s.consumers(self.name):
            if s.can("compute_inline", crop):
                s.compute_inline(crop)
        return [c.name for c in s.consumers(self.name)]

    def _pack(self) -> tuple[Packed, Packed]:
        """Lay the operands out as the instruction reads them."""
        s, plan, c = self.s, self.plan, as_contraction(self.s.block_of(self.name))
        assert c is not None
        along, group = plan.depth.var, self.dot.depth
        return (
            pack_operand(s, self.name, c.a, plan.row.var, along, plan.rows, group),
            pack_operand(s, self.name, c.b, plan.column.var, along, plan.columns, group),
        )

    # ---- results ---------------------------------------------------------------------------------

    def _epilogue(self) -> list[str]:
        """The blocks that take the accumulators on, in order; a plain copy if there is none."""
        s, out = self.s, self.s.block_of(self.name).writes[0].buffer
        if out in s.function.buffers:
            return [s.cache_write(self.name, 0, "local").name]
        s.set_scope(self.name, out, "local")
        return [b.name for b in s.consumers(self.name)]

    def _lay_out_results(self) -> None:
        """One accumulator holds a small square."""
        rows, columns, out = (
            self.dot.rows,
            self.dot.columns,
            self.s.block_of(self.name).writes[0].buffer,
        )

        def squares(*at: Expr) -> tuple[Expr, ...]:
            *rest, i, j = at
            return (*rest, i // rows, j // columns, i % rows * columns + j % columns)

        self.s.transform_layout(self.name, out, squares)

    def _start(self, init: str) -> None:
        """The accumulators start as whole vectors."""
        loops = self.s.loops(init)
        outside = self.s.loops(self.name)
        inner = [loop for loop in loops if loop not in outside]
        lanes = self.s.fuse(*inner[-2:]) if self.dot.square else inner[-1]
        for loop in inner[: -2 if self.dot.square else -1]:
            self.s.unroll(loop)
        self.s.vectorize(lanes)

    def _place_epilogue(self, names: list[str], loop: Loop) -> None:
        for name in names:
            if self.s.can("reverse_compute_at", name, loop):
                lanes = self.target.lanes(self.dot.out)
                vectorize_tile(self.s, self.s.reverse_compute_at(name, loop), lanes)

    # ---- loops -----------------------------------------------------------------------------------

    def _cut_rows(self, row: Loop) -> tuple[Loop, Loop, Loop, list[Loop]]:
        """Chunks that are packed together, tiles in a chunk, groups in a tile, rows in a group."""
        tile, rows = self.plan.rows, self.dot.rows
        chunk, tiles, groups, *i = self.s.split(
            row, None, self._tiles_per_chunk(), tile // rows, *([rows] if rows > 1 else [])
        )
        return chunk, tiles, groups, i

    def _tiles_per_chunk(self) -> int:
        """As many as fit half of L2, evenly spread over the cores."""
        plan, cores = self.plan, self.target.cores
        depth = (extent_of(plan.depth) or 1) * plan.dot.a.itemsize
        tiles = -(-(extent_of(plan.row) or 1) // plan.rows)
        fit = max(1, self.target.caches.l2 // 2 // max(1, depth * plan.rows))
        chunks = -(-max(-(-tiles // fit), cores) // cores) * cores
        return max(1, -(-tiles // chunks))

    def _place_rows(self, rows: Packed, chunk: Loop) -> None:
        """Rows are packed by the thread that uses them."""
        schedule_packing(self.s, rows, self.s.compute_at(rows.block, chunk), self.target)

    def _place_columns(self, columns: Packed) -> None:
        """Columns are packed once for all, by all threads."""
        loops = self.s.loops(columns.block)
        outer = schedule_packing(self.s, columns, loops[-2:], self.target)
        if outer is not None and self._is_large:
            self.s.parallel(outer)

    @property
    def _is_large(self) -> bool:
        return self.work >= _PARALLEL_WORTH and self.target.cores > 1

    def _parallelize(self, loops: list[Loop]) -> None:
        if self._is_large:
            self.s.parallel(self.s.fuse(*loops) if len(loops) > 1 else loops[0])
