"""A Winograd product of two operands that are both transformed at run time, as is the result.

    transform all rows, by all threads
    for block of columns (parallel):
        for block of the reduction:
            transform the columns of the block
            for plane: for tile of rows:
                accumulators = rows × columns, over the block          all in registers
                sums += accumulators
        transform the sums, tile by tile, with what follows

Columns are used right after they are transformed, while they are in L1, and are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import DType, Load, Var, all_exprs, free_vars
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    as_contraction,
    extent_of,
    is_injective,
    loops_within,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances, parallelize_outer
from tilewright.schedule.rules.products.tiles import Factors, Size, Tile, rank_tiles
from tilewright.schedule.rules.rule import MOST, Choices, Rule
from tilewright.schedule.rules.winograd.positions import (
    chooses_by_position,
    cut_tiles,
    indices_of_source,
    source_order,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class ProductShape(NamedTuple):
    """The product of one plane: rows, columns, and the length of its innermost reduction loop."""

    dtype: DType
    rows: int | None
    columns: int | None
    depth: int | None

    def tiles(self, target: Target) -> list[Tile]:
        """Register tiles of sums, the best predicted throughput first."""
        whole = (self.depth or 1) % target.lanes(self.dtype) == 0
        factors: Factors = "depth" if whole else "broadcast"
        size = Size(self.rows, self.columns, self.depth)
        return rank_tiles(target, self.dtype, size, factors, self.columns)


class TransformedProduct(NamedTuple):
    """The blocks: chains of transforms, each of which reads the one before, and the sums between
    these chains."""

    rows: list[str]
    columns: list[str]
    #: Sums over a block of the reduction, and over all of it.
    parts: str
    total: str
    results: list[str]
    end: str
    shape: ProductShape


class TransformedPlan(NamedTuple):
    """How such a product is computed: the register tile of sums."""

    found: TransformedProduct
    tile: Tile


def _match(s: Schedule, _block: str, _target: Target) -> TransformedProduct | None:
    """The blocks of a function that is such a product."""
    products = [b.name for b in s.blocks() if as_contraction(s.block_of(b)) is not None]
    if len(products) != 1:
        return None
    (parts,), users = products, s.consumers(products[0])
    if len(users) != 1 or not is_reduction(s.block_of(users[0])):
        return None
    total = users[0].name
    c = as_contraction(s.block_of(parts))
    assert c is not None
    makers = {stores_of(s.block_of(b))[0].buffer: b.name for b in s.producers(parts)}
    rows, columns = (chain_before(s, makers.get(access.buffer)) for access in (c.a, c.b))
    results, end = chain_after(s, total)
    if not rows or not columns or not results or end is None:
        return None
    own = s.block_of(total)
    *_, row, column = (it for it in own.iters if it.kind == "spatial")
    dtype, step = stores_of(own)[0].buffer.dtype, s.block_of(parts).iters[-1]
    shape = ProductShape(dtype, extent_of(row), extent_of(column), extent_of(step))
    return TransformedProduct(rows, columns, parts, total, results, end, shape)


def _plan(found: TransformedProduct, target: Target, choices: Choices) -> TransformedPlan:
    return TransformedPlan(found, choices.choose("tile", found.shape.tiles(target)[:MOST]))


def chain_before(s: Schedule, name: str | None) -> list[str]:
    """The chain of transforms that ends with a block."""
    chain: list[str] = []
    while name is not None and chooses_by_position(s.block_of(name)):
        chain.insert(0, name)
        makers = s.producers(name)
        name = makers[0].name if len(makers) == 1 else None
    return chain


def chain_after(s: Schedule, name: str) -> tuple[list[str], str | None]:
    """The transforms of a block's result, in order, and the block that reads the last one."""
    chain: list[str] = []
    users = s.consumers(name)
    while len(users) == 1 and chooses_by_position(s.block_of(users[0])):
        chain.append(users[0].name)
        users = s.consumers(users[0])
    is_end = len(users) == 1 and is_injective(s.block_of(users[0]))
    return chain, users[0].name if is_end else None


def loop_over_blocks(
    s: Schedule, product: str, total: str, results: Sequence[str], end: str
) -> Loop:
    """The loop of the block `end` over blocks of the product's columns (channels of an image).

    The transforms `results` lead to `end` from the block `total`: the product, or the sum of its
    parts.
    """
    read = indices_of_source(s, results, end)
    found = [read[k] for k in _dimensions_of_blocks(s, product, total)]
    loops = loops_within(s, end, None)
    if len(found) != 1 or not isinstance(found[0], Var) or found[0] not in loops:
        raise RefusedError(f"{end} has no loop over blocks of the columns of {product}")
    return loops[found[0]]


def _dimensions_of_blocks(s: Schedule, product: str, total: str) -> list[int]:
    """The dimensions of `total`'s result that run over columns, except the one within a block."""
    c = as_contraction(s.block_of(product))
    assert c is not None
    in_rows = frozenset[Var]().union(*map(free_vars, c.a.indices))
    columns = [k for k, i in enumerate(c.out.indices) if i not in in_rows][:-1]
    if total == product:
        return columns
    made = stores_of(s.block_of(total))[0]
    loads = [e for e in all_exprs(made) if isinstance(e, Load) and e.buffer is c.out.buffer]
    carried = [loads[0].indices[k] for k in columns]
    return [k for k, i in enumerate(made.indices) if i in carried]


def _schedule(s: Schedule, _block: str, plan: TransformedPlan, target: Target) -> None:
    """Compute all blocks for one block of columns at a time."""
    t = plan.found
    block = _cut_results(s, t, target)
    s.compute_at(t.total, block)
    depth = _cut_products(s, t, block, plan.tile)
    s.compute_at(t.columns[-1], depth)
    cut_tiles(s, t.columns[:-1], t.columns[-1], target, depth)
    work = sum(instances(s.block_of(n)) for n in t.rows)
    chain, rows = t.rows[:-1], t.rows[-1]
    outer = source_order(s, chain, rows, cut_tiles(s, chain, rows, target))
    s.reorder(*outer)
    parallelize_outer(s, rows, target, work, within=outer)
    if target.cores > 1 and instances(s.block_of(t.parts)) > target.timing.fork_operations:
        s.parallel(block)


TRANSFORMED = Rule("transformed", _match, _plan, _schedule)


def _cut_results(s: Schedule, t: TransformedProduct, target: Target) -> Loop:
    """Cut the results; gives the loop over blocks of channels, outside those over tiles."""
    block = loop_over_blocks(s, t.parts, t.total, t.results, t.end)
    outer = cut_tiles(s, t.results, t.end, target)
    s.reorder(block, *(loop for loop in outer if loop != block))
    return block


def _cut_products(s: Schedule, t: TransformedProduct, block: Loop, tile: Tile) -> Loop:
    """Cut the sums into register tiles; gives the innermost loop around a part of the reduction."""
    own, loops = s.block_of(t.total), loops_within(s, t.total, block)
    *_, row, column = (it for it in own.iters if it.kind == "spatial")
    (depth,) = (it for it in own.iters if it.kind == "reduce")
    panel, vectors, lanes = s.split(loops.pop(column.var), None, tile.vectors, tile.lanes)
    # A single block, or a single row, has no loop.
    blocks = [loops.pop(depth.var)] if depth.var in loops else []
    outer, inner = (
        s.split(loops.pop(row.var), None, tile.rows) if row.var in loops else (None, None)
    )
    rows, within = ([] if loop is None else [loop] for loop in (outer, inner))
    s.reorder(*blocks, *loops.values(), panel, *rows, *within, vectors, lanes)
    for loop in (*within, vectors):
        s.unroll(loop)
    s.vectorize(lanes)
    _cut_parts(s, t, (rows or [panel])[-1], tile)
    return (blocks or [block])[-1]


def cut_steps(s: Schedule, steps: list[Loop], tile: Tile) -> tuple[list[Loop], list[Loop]]:
    """Split off neighbouring steps of the reduction, to be unrolled, where lanes hold them."""
    if tile.factors != "depth":
        return steps, []
    outer, inner = s.split(steps[-1], None, tile.lanes)
    return [*steps[:-1], outer], [inner]


def _cut_parts(s: Schedule, t: TransformedProduct, around: Loop, tile: Tile) -> None:
    """Compute the sums over a block of the reduction in registers."""
    s.set_scope(t.parts, 0, "local")
    s.compute_at(t.parts, around)
    own, loops = s.block_of(t.parts), loops_within(s, t.parts, around)
    steps = [loops.pop(it.var) for it in own.iters if it.kind == "reduce" and it.var in loops]
    steps, unrolled = cut_steps(s, steps, tile)
    *rows, columns = loops.values()
    vectors, lanes = s.split(columns, None, tile.lanes)
    s.reorder(*steps, *unrolled, *rows, vectors, lanes)
    for loop in (*unrolled, *rows, vectors):
        s.unroll(loop)
    s.vectorize(lanes)
