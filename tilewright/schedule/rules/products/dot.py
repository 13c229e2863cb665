"""Products of small types by dot-product instructions: a block of sums in vector registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Expr, Iter, is_const
from tilewright.schedule.intrinsics import Dot, dots_for
from tilewright.schedule.rules.analysis import constants_of, stores_of
from tilewright.schedule.rules.products.available import reads_rows_in_place
from tilewright.schedule.rules.products.packing import Layout, Rows
from tilewright.schedule.rules.products.product import (
    Product,
    ProductCut,
    as_product,
    begin_inlined_epilogue,
    place_results,
    prefetch_next_panel,
    start_with_vectors,
    used,
)
from tilewright.schedule.rules.rule import MOST, Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The most rows and vectors of columns in a block.
_MOST_ROWS, _MOST_VECTORS = 16, 8


@dataclass(frozen=True)
class DotPlan:
    """The instruction, and how many rows and columns make a block."""

    product: Product
    dot: Dot
    rows: int
    columns: int


def _match(s: Schedule, name: str, target: Target) -> tuple[Product, list[Dot]] | None:
    """A product for which the target has instructions, the best first; none where rows of pixels
    are better read in place."""
    block = s.block_of(name)
    product = as_product(block)
    if product is not None and (product.blocks or product.runs):
        product = None if reads_rows_in_place(block, constants_of(s.function), target) else product
    found = dots_for(target, *product.types) if product is not None else []
    return None if product is None or not found else (product, list(found))


def _plan(found: tuple[Product, list[Dot]], target: Target, choices: Choices) -> DotPlan:
    product, dots = found
    dot = choices.choose("instruction", dots)
    blocks = _ranked_blocks(dot, target, *product.extents)
    return DotPlan(product, dot, *choices.choose("block", blocks[:MOST]))


def _ranked_blocks(dot: Dot, target: Target, rows: int, columns: int) -> list[tuple[int, int]]:
    """The blocks whose accumulators fit the registers, the highest predicted throughput first."""
    shapes = [
        (r, v)
        for r in range(1, _MOST_ROWS // dot.rows + 1)
        for v in range(1, _MOST_VECTORS + 1)
        if _registers(dot, r, v) <= target.vector_registers
    ]
    shapes.sort(key=lambda shape: _score(dot, target, *shape, rows, columns), reverse=True)
    return [(r * dot.rows, v * dot.columns) for r, v in shapes]


def _accumulators(dot: Dot, r: int, v: int) -> int:
    return r * v * (1 if dot.square else dot.rows)


def _registers(dot: Dot, r: int, v: int) -> int:
    sums = 0 if dot.accumulates else 1
    return _accumulators(dot, r, v) + v + (1 if dot.rows == 1 else r) + sums


def _score(dot: Dot, target: Target, r: int, v: int, rows: int, columns: int) -> float:
    """Useful instructions per cycle."""
    work, loads, timing = _accumulators(dot, r, v), r + v, target.timing
    busy = work * dot.instructions / target.fma_ports
    cycles = max(busy, loads / timing.load_ports, target.fma_latency)
    cycles += timing.load_cycles * loads + timing.loop_cycles
    return work / cycles * used(rows, r * dot.rows) * used(columns, v * dot.columns)


# ---- applying a plan ----------------------------------------------------------------------------


def _schedule(s: Schedule, name: str, plan: DotPlan, target: Target) -> None:
    """Cut the block `name` by `plan` and tensorize its tiles."""
    dot = plan.dot
    cut = ProductCut(s, name, plan.product, (plan.rows, plan.columns, dot.depth), target)
    cut.pad()
    own = Rows(plan.rows) if dot.rows == 1 else Layout(plan.rows, dot.depth)
    rows, columns = cut.pack(own, Layout(plan.columns, dot.depth))
    epilogue = begin_inlined_epilogue(s, name)
    if dot.square:
        _lay_out_squares(s, name, dot)
    elif dot.rows > 1:
        _lay_out_rows(s, name, plan.product.row)
    others, row, outside, column, runs, depth = cut.loops_by_role()
    factors = [cut.blocks_per_chunk(), plan.rows // dot.rows, *([dot.rows] if dot.rows > 1 else [])]
    chunk, blocks, groups, *i = s.split(row, None, *factors)
    panel, vectors, j = s.split(column, None, plan.columns // dot.columns, dot.columns)
    steps, k = s.split(depth, None, dot.depth)
    s.reorder(*others, chunk, *outside, panel, blocks, *runs, steps, groups, vectors, *i, j, k)
    start_with_vectors(s, name, s.decompose_reduction(name, (*runs, steps)[0]).name, dot)
    s.unroll(groups)
    s.unroll(vectors)
    place_results(s, epilogue, blocks, target.lanes(plan.product.types[2]))
    cut.place_rows(rows, chunk)
    cut.place_columns(columns)
    if target.caches.l2 and any(not is_const(s.loop_of(p).extent, 1) for p in (*outside, panel)):
        prefetch_next_panel(s, name, blocks)
    s.tensorize((*i, j)[0], dot.name)
    cut.parallelize([*others, chunk])


DOT = Rule("dot", _match, _plan, _schedule)


def _lay_out_rows(s: Schedule, name: str, row: Iter) -> None:
    """Make rows of sums contiguous, for instructions that compute several."""
    (store,) = stores_of(s.block_of(name))
    own = store.indices.index(row.var)
    if own == len(store.indices) - 2:
        return

    def neighbours(*at: Expr) -> tuple[Expr, ...]:
        rest = [i for n, i in enumerate(at[:-1]) if n != own]
        return (*rest, at[own], at[-1])

    s.transform_layout(name, 0, neighbours)


def _lay_out_squares(s: Schedule, name: str, dot: Dot) -> None:
    """Let each accumulator hold a small square of sums."""

    def squares(*at: Expr) -> tuple[Expr, ...]:
        *rest, i, j = at
        own = i % dot.rows * dot.columns + j % dot.columns
        return (*rest, i // dot.rows, j // dot.columns, own)

    s.transform_layout(name, 0, squares)
