"""Attention by tensor instructions: the steps that do not depend on where scores are kept.

Both products first get loop nests of their own over tiles of the same rows; these are merged once
the blocks between them are placed. The first product loops over the keys in tiles of its columns,
the second in parts of its sum, which are keys as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from tilewright.ir import (
    GROUP_ROWS,
    PITCH,
    STAGES,
    TILE_SIDE,
    GroupProduct,
    Var,
    WarpProduct,
)
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import extent_of, stores_of
from tilewright.schedule.rules.gpu.attention.plan import AttentionPlan
from tilewright.schedule.rules.gpu.grid import extent_of_loop, feeds_only, fused
from tilewright.schedule.rules.gpu.operands import (
    copying,
    cut_sum,
    own_variable,
    prepare,
    spread_copy,
)
from tilewright.schedule.rules.gpu.product_plan import Plan, Product
from tilewright.schedule.rules.gpu.warp_tiles import (
    WarpTile,
    finish,
    lay_out_copy,
    lay_out_sums,
    runs_along_sum,
    start_sums,
)
from tilewright.schedule.schedule import Schedule

#: The longest loop of a thread that is unrolled; of longer ones, some iterations at a time.
_MOST_WRITTEN_OUT: Final = 16
_TOGETHER: Final = (8, 7, 6, 5, 4, 3, 2)


class Loops(NamedTuple):
    """The loops of a product: over tiles of rows, over what is copied at a time, over parts of the
    sum, over warps, and within a warp (the last one starts the tensorized nest)."""

    grid: Loop
    steps: Loop
    sums: Loop
    warps: tuple[Loop, ...]
    own: tuple[Loop, ...]


class Side(NamedTuple):
    """One of the two products, with its loops."""

    is_first: bool
    name: str
    #: The block that reads its sums, and the block that initialises them, once there is one.
    home: str
    start: str
    tile: WarpTile
    #: How much of its sum is copied to shared memory at a time.
    depth: int
    #: The blocks that copy its operands, and whether these are contiguous along the sum.
    copies: tuple[str, str]
    along: tuple[bool, bool]
    loops: Loops


class Parts(NamedTuple):
    """A reduction along rows: parts in threads' registers, stored to shared memory, and joined."""

    parts: str
    home: str
    joined: str
    #: The loops of the block that stores the parts, in its order.
    loops: tuple[Loop, ...] = ()


class Cut(ABC):
    """The steps of the schedule."""

    def __init__(self, s: Schedule, plan: AttentionPlan) -> None:
        self.s, self.plan, self.found = s, plan, plan.found
        self.threads = plan.warps.threads

    def apply(self) -> None:
        s, found = self.s, self.found
        first, second = self.products()
        greatest, total = (self.by_parts(name) for name in found.reductions)
        shares, around = second.copies[0], second.loops.grid
        first, second = (self.started(side, side.loops.sums) for side in (first, second))
        s.compute_at(shares, around)
        total = self._placed(total, around)
        self.place_powers(around)
        greatest = self._placed(greatest, around)
        grid = s.merge(first.loops.grid, around)
        s.bind(grid, "blockIdx.x")
        for side in (first, second):
            self.by_threads(side, grid)
        for r in (greatest, total):
            self.reduce_by_threads(r, grid)
        self.share_out(first, second, grid)
        for side in (first, second):
            self.by_instructions(side)
            s.annotate(side.loops.steps, STAGES, self.plan.stages)

    # ---- what depends on where scores are -------------------------------------------------------

    @abstractmethod
    def place_powers(self, around: Loop) -> None:
        """Place the second reduction's operand in a loop over tiles of rows, or inline it."""

    @abstractmethod
    def thread_of_row(self, along: Loop) -> Loop:
        """Split `along`, the loop along a row; gives the loop over the threads of a row."""

    @abstractmethod
    def loops_of_parts(self, loops: list[Loop]) -> tuple[Loop, ...]:
        """The loops over parts of rows, in the order of threads."""

    @abstractmethod
    def reduce_by_threads(self, r: Parts, grid: Loop) -> None:
        """Distribute a reduction along rows over threads."""

    @abstractmethod
    def share_out(self, first: Side, second: Side, grid: Loop) -> None:
        """Choose threads and memory for scores and for the second product's left operand."""

    # ---- products -------------------------------------------------------------------------------

    def products(self) -> tuple[Side, Side]:
        """Both products, each with loops of its own."""
        plans = [self._prepared(number) for number in range(2)]
        first, second = (self._product(k, *planned) for k, planned in enumerate(plans))
        if self.found.shares in [b.name for b in self.s.blocks()]:
            self.s.compute_inline(self.found.shares)
        return first, second

    def started(self, side: Side, loop: Loop) -> Side:
        """A product whose sums are initialised before a loop."""
        return side._replace(start=self.s.decompose_reduction(side.name, loop).name)

    def _prepared(self, number: int) -> tuple[Plan, str]:
        """Copy operands, padded to whole tiles; gives also the block that reads the sums."""
        s, found, product = self.s, self.found, self.found.products[number]
        name, home = ((found.first, found.home), (found.second, found.after))[number]
        unit = PITCH if self.plan.warps.are_groups else TILE_SIDE
        whole = -(-(extent_of(product.reduced[0]) or 1) // unit) * unit
        depth = self.plan.steps if number else whole
        plan, cut = prepare(s, name, Plan(product, self.plan.tiles[number], 0, depth))
        if home is not None and cut is not None:
            s.compute_inline(cut)
        made = home or cut
        if made is None:
            return plan, s.cache_write(name, 0, "local").name
        s.set_scope(name, 0, "local")
        return plan, made

    def _product(self, number: int, plan: Plan, home: str) -> Side:
        """A product with its loops, the copies of its operands, and the block that reads it.

        The left operand of the second product is computed between the two.
        """
        s, p, is_first = self.s, plan.product, number == 0
        name = self.found.first if is_first else self.found.second
        tile, depth = WarpTile(p, plan.tile, self.plan.warps), p.reduced[0].var
        a, b = (copying(s, name, x.buffer) for x in (p.contraction.a, p.contraction.b))
        if not is_first and not self.plan.is_shared:
            s.set_scope(a, 0, "local")
        by_sum = not is_first or runs_along_sum(s, name, a, depth)
        along = by_sum, runs_along_sum(s, name, b, depth)
        loops = self._loops(number, name, plan, tile)
        s.reverse_compute_at(home, loops.steps if is_first else loops.grid)
        s.compute_at(b, loops.steps)
        if is_first:
            s.compute_at(a, loops.grid)
        return Side(is_first, name, home, "", tile, plan.steps, (a, b), along, loops)

    def _loops(self, number: int, name: str, plan: Plan, tile: WarpTile) -> Loops:
        s, p, block = self.s, plan.product, self.s.block_of(name)
        loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
        heads = [loops[v] for v in _heads(self.found.products[number], number)]
        (k0,), (rest,) = cut_sum(s, [loops[p.reduced[0].var]], plan)
        k1, k = s.split(rest, None, TILE_SIDE)
        if tile.warps.are_groups:
            m0, *warps, i = s.split(loops[p.row.var], None, tile.warps.down, GROUP_ROWS)
            n0, j = s.split(loops[p.column.var], None, plan.tile.columns)
            own = [k1, i]
        else:
            m0, wm, mi, i = s.split(loops[p.row.var], None, *tile.parts(0))
            n0, wn, ni, j = s.split(loops[p.column.var], None, *tile.parts(1))
            warps, own = [wm, wn], [k1, mi, ni, i]
        over, tiles = ([*heads, m0], [n0, k0]) if number == 0 else ([*heads, m0, n0], [k0])
        s.reorder(*over, *tiles, *warps, *own, j, k)
        return Loops(fused(s, over), tiles[0], k0, tuple(warps), tuple(own))

    def by_threads(self, side: Side, grid: Loop) -> None:
        """Threads for the copies of a product, and for initialising and reading its sums."""
        s, p, steps = self.s, side.tile.product, side.loops.steps
        depth, sides = p.reduced[0].var, (p.row.var, p.column.var)
        for copy, var, by_sum, at in zip(
            side.copies, sides, side.along, (grid, steps), strict=True
        ):
            if side.is_first or at is steps:
                own = own_variable(s, side.name, copy, depth if by_sum else var)
                spread_copy(s, copy, at, own, self.threads)
        around = steps if side.is_first else grid
        start_sums(s, side.name, side.start, side.tile, around)
        finish(s, side.name, side.home, side.tile, around)

    def by_instructions(self, side: Side) -> None:
        """Lay out memory as the instruction needs it, and tensorize."""
        s, p, tile = self.s, side.tile.product, side.tile
        depth, sides = (p.reduced[0].var, side.depth), (p.row.var, p.column.var)
        lay_out_sums(s, side.name, tile)
        is_own = not side.is_first and not self.plan.is_shared
        for copy, var, by_sum, size in zip(side.copies, sides, side.along, tile.size, strict=True):
            if not is_own or copy != side.copies[0]:
                of, groups = (var, size), tile.warps.are_groups
                lay_out_copy(s, side.name, copy, of, depth, by_sum=by_sum, by_groups=groups)
        *unrolled, own = side.loops.own
        for loop in unrolled:
            s.unroll(loop)
        for loop, axis in zip(side.loops.warps, ("threadIdx.z", "threadIdx.y"), strict=False):
            s.bind(loop, axis)
        s.tensorize(own, _instruction(side, is_own=is_own).name)

    # ---- rows -----------------------------------------------------------------------------------

    def by_parts(self, name: str) -> Parts:
        """Split a reduction along rows into parts, one for each of a row's threads."""
        s, block = self.s, self.s.block_of(name)
        (along,) = [x for x in s.loops(name) if not feeds_only(block, x, "spatial")]
        rank = len(stores_of(block)[0].indices)
        parts = s.rfactor(self.thread_of_row(along), rank).name
        return Parts(parts, s.cache_write(parts, 0, "local").name, name)

    def _placed(self, r: Parts, grid: Loop) -> Parts:
        s = self.s
        s.compute_at(r.joined, grid)
        s.compute_at(r.home, grid)
        loops = self.loops_of_parts(self.inside(r.home, grid))
        s.compute_at(r.parts, loops[-1])
        for name in (r.home, r.joined):
            s.set_scope(name, 0, "shared")
        return r._replace(loops=loops)

    def by_rows(self, name: str, grid: Loop) -> None:
        """Schedule what is done once per row, or once per part of a row."""
        s, inside = self.s, self.inside(name, grid)
        block = s.block_of(name)
        spatial = [x for x in inside if feeds_only(block, x, "spatial")]
        self.bind(fused(s, spatial))
        for loop in inside:
            if loop not in spatial:
                self.unroll(loop)

    def bind(self, loop: Loop) -> None:
        """Bind a loop with at most as many iterations as there are threads."""
        s = self.s
        extents = [n for _, n in self.threads]
        count = extent_of_loop(s, loop) or 0
        if count <= extents[-1]:
            s.bind(loop, self.threads[-1][0])
            return
        for part, (axis, _) in zip(s.split(loop, *extents), self.threads, strict=True):
            s.bind(part, axis)

    def unroll(self, loop: Loop) -> None:
        """Unroll a loop, wholly or some iterations at a time."""
        extent = extent_of_loop(self.s, loop) or 1
        some = next((n for n in _TOGETHER if extent % n == 0 and extent > n), None)
        if extent <= _MOST_WRITTEN_OUT:
            self.s.unroll(loop)
        elif some is not None:
            self.s.unroll(self.s.split(loop, None, some)[1])

    def inside(self, name: str, grid: Loop) -> list[Loop]:
        loops = list(self.s.loops(name))
        return loops[loops.index(grid) + 1 :]


def _instruction(side: Side, *, is_own: bool) -> WarpProduct | GroupProduct:
    factors, (a, b) = side.tile.factors, side.along
    if side.tile.warps.are_groups:
        return GroupProduct(factors, side.tile.size.columns, not a, b, a_is_own=is_own)
    return WarpProduct(factors, not a, b, a_is_own=is_own)


def _heads(p: Product, number: int) -> Sequence[Var]:
    """The variables of heads, in the order of the dimensions of the scores."""
    indices = (p.contraction.a if number else p.contraction.out).indices
    places = {index: k for k, index in enumerate(indices)}
    return sorted((it.var for it in p.others), key=lambda v: places.get(v, -1))
