"""Matrix products with operands packed for an instruction: what their rules have in common.

    pack the columns, by all threads
    for chunk of rows (parallel):
        pack the rows
        for panel of columns: for block of rows:
            sums over the reduction, by the instruction
            output = epilogue(sums)

Extents that are no multiples of the blocks are padded with zeros while packing. Convolutions with
gathered rows (`gather_rows`) are such products: their columns may come in blocks, and their
reductions in runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tilewright.ir import Block, Const, DType, Iter, Var, is_const
from tilewright.schedule.facts.products import is_step
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import Dot
from tilewright.schedule.rules.analysis import Access, Contraction, as_contraction, extent_of
from tilewright.schedule.rules.epilogue import lanes_of_stores, vectorize_tile
from tilewright.schedule.rules.products.packing import (
    Layout,
    Packed,
    Rows,
    pack_operand,
    schedule_packing,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The fewest rows or columns for which packing pays.
_LEAST_SIDE = 16


@dataclass(frozen=True)
class Product:
    """C[…, i, j] += A[…, i, k] * B[…, k, j] with known extents, in any order of dimensions."""

    row: Iter
    column: Iter
    depth: Iter
    #: The types of A, B and C.
    types: tuple[DType, DType, DType]
    #: Variables over blocks of columns, and over runs of the reduction, if any.
    blocks: tuple[Iter, ...] = ()
    runs: tuple[Iter, ...] = ()

    @property
    def extents(self) -> tuple[int, int]:
        """The numbers of rows, and of columns in a block."""
        return extent_of(self.row) or 1, extent_of(self.column) or 1

    @property
    def steps(self) -> int:
        """Steps of the whole reduction."""
        return prod(extent_of(it) or 1 for it in (*self.runs, self.depth))


def as_product(block: Block) -> Product | None:
    """The block as a product that is worth packing operands for, if it is one."""
    c = as_contraction(block)
    if c is None or not c.rows or not c.columns or not c.reduced or not is_plain(c):
        return None
    (*_, row), (*blocks, column), (*runs, depth) = c.rows, c.columns, c.reduced
    known = all(extent_of(it) is not None for it in (row, *c.columns, *c.reduced))
    if not known or c.out.step(column.var) != 1:
        return None
    types = (c.a.buffer.dtype, c.b.buffer.dtype, c.out.buffer.dtype)
    columns = prod(extent_of(it) or 1 for it in c.columns)
    worth = min(extent_of(row) or 1, columns) >= _LEAST_SIDE
    return Product(row, column, depth, types, tuple(blocks), tuple(runs)) if worth else None


def is_plain(c: Contraction) -> bool:
    """Whether every index of the operands and the result is a single variable or a constant."""
    accesses = (c.a, c.b, c.out)
    return all(isinstance(i, Var | Const) for access in accesses for i in access.indices)


def used(extent: int, tile: int) -> float:
    """The useful fraction of the tiles that cover an extent."""
    return extent / (-(-extent // tile) * tile)


def begin_inlined_epilogue(s: Schedule, name: str) -> list[str]:
    """Inline inner blocks of the epilogue; gives the readers of `name`'s sums, or a new copy."""
    out = s.block_of(name).writes[0].buffer
    # In a scan, consumers may need all results of a step, so nothing is fused.
    if is_step(s.block_of(name)) or out in s.function.buffers:
        return [s.cache_write(name, 0, "local").name]
    s.set_scope(name, out, "local")
    _inline_after(s, name)
    return [b.name for b in s.consumers(name)]


def _inline_after(s: Schedule, name: str) -> None:
    """Inline the blocks between the sums and the last block of the epilogue."""
    for step in s.consumers(name):
        if s.consumers(step) and s.can("compute_inline", step):
            s.compute_inline(step)
            return _inline_after(s, name)
    return None


def start_with_vectors(s: Schedule, name: str, init: str, dot: Dot) -> None:
    """Initialize the accumulators as whole vectors."""
    outside = s.loops(name)
    inner = [loop for loop in s.loops(init) if loop not in outside]
    *outer, lanes = inner
    if dot.square:
        *outer, rows = outer
        lanes = s.fuse(rows, lanes)
    for loop in outer:
        s.unroll(loop)
    s.vectorize(lanes)


def prefetch_next_panel(s: Schedule, name: str, rows: Loop) -> None:
    """Let the loop over panels, around the loop `rows`, prefetch the next panel.

    Between two runs, weights are evicted from the caches; the rows of one panel take long enough to
    fetch the next one. Where a block of columns is a single panel, that is in the next block.
    """
    loops = s.loops(name)
    around = loops[: loops.index(rows)]
    longer = [loop for loop in around if not is_const(s.loop_of(loop).extent, 1)]
    if longer:
        s.annotate(longer[-1], "prefetch_next", 1)


def place_results(s: Schedule, names: list[str], loop: Loop, lanes: int) -> None:
    """Fuse the consumers `names` into the loop over tiles, unrolled: sums stay in registers."""
    for name in names:
        if s.can("reverse_compute_at", name, loop):
            loops = s.reverse_compute_at(name, loop)
            vectorize_tile(s, loops, lanes_of_stores(s, name, loops, lanes))


class Loops(NamedTuple):
    """The loops of a product."""

    others: list[Loop]
    row: Loop
    blocks: list[Loop]
    column: Loop
    runs: list[Loop]
    depth: Loop


class ProductCut:
    """The steps of a schedule that do not depend on the instruction.

    A block is `rows` × `columns` sums; one instruction covers `steps` of the reduction.
    """

    def __init__(
        self,
        s: Schedule,
        name: str,
        product: Product,
        block: tuple[int, int, int],
        target: Target,
    ) -> None:
        self.s, self.name, self.product, self.target = s, name, product, target
        self.rows, self.columns, self.steps = block
        work = prod(extent_of(it) or 1 for it in s.block_of(name).iters)
        self.is_parallel = target.cores > 1 and work >= target.timing.fork_narrow_products

    # ---- operands --------------------------------------------------------------------------------

    def pad(self) -> None:
        """Pad the extents to whole blocks."""
        product, iters = self.product, self.s.block_of(self.name).iters
        wanted = {
            product.row.var: self.rows,
            product.column.var: self.columns,
            product.depth.var: self.steps,
        }
        factors = [wanted.get(it.var, 1) for it in iters]
        if any((extent_of(it) or 0) % f for it, f in zip(iters, factors, strict=True)):
            self.s.pad(self.name, factors)

    def pack(self, rows: Layout | Rows, columns: Layout) -> tuple[Packed, Packed]:
        """Pack both operands in these layouts."""
        c, product = as_contraction(self.s.block_of(self.name)), self.product
        assert c is not None
        return self._packed(c.a, product.row, rows), self._packed(c.b, product.column, columns)

    def _packed(self, access: Access, across: Iter, layout: Layout | Rows) -> Packed:
        depth, runs = self.product.depth.var, [it.var for it in self.product.runs]
        return pack_operand(self.s, self.name, access, across.var, depth, layout, runs)

    def place_rows(self, rows: Packed, chunk: Loop) -> None:
        """Pack rows in the thread that uses them."""
        self.s.compute_at(rows.block, chunk)
        schedule_packing(self.s, rows, self.target)

    def place_columns(self, columns: Packed) -> None:
        """Pack columns once, by all threads."""
        outer = schedule_packing(self.s, columns, self.target)
        if outer is not None and self.is_parallel:
            self.s.parallel(outer)

    # ---- loops -----------------------------------------------------------------------------------

    def blocks_per_chunk(self) -> int:
        """Blocks of rows packed together: they fit half of L2, in chunks that balance cores."""
        rows, _ = self.product.extents
        size = self.product.steps * self.rows * self.product.types[0].itemsize
        blocks, cores = -(-rows // self.rows), self.target.cores
        fit = max(1, self.target.caches.l2 // 2 // max(1, size))
        chunks = -(-max(-(-blocks // fit), cores) // cores) * cores
        return max(1, -(-blocks // chunks))

    def loops_by_role(self) -> Loops:
        """The loops of the product, by what they run over."""
        s, product = self.s, self.product
        iters = s.block_of(self.name).iters
        loops = {it.var: loop for it, loop in zip(iters, s.loops(self.name), strict=True)}

        def taken(*its: Iter) -> list[Loop]:
            return [loops.pop(it.var) for it in its]

        row, column, depth = taken(product.row, product.column, product.depth)
        blocks, runs = taken(*product.blocks), taken(*product.runs)
        return Loops(list(loops.values()), row, blocks, column, runs, depth)

    def parallelize(self, loops: list[Loop]) -> None:
        if self.is_parallel:
            self.s.parallel(self.s.fuse(*loops) if len(loops) > 1 else loops[0])
