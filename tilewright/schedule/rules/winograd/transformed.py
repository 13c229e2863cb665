"""A product of two operands that are transformed by fixed matrices, and so is what it gives.

    transform all rows, by all threads
    for block of columns (parallel):
        for block of the reduction:
            transform the columns of the block
            for plane: for tile of rows:
                accumulators = rows × columns, over the block          all in registers
                sums += accumulators
        transform the sums, tile by tile, with what follows

Columns that were just transformed lie in the nearest cache when they are used, and are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import DType, Iter, Load, Var, all_exprs, free_vars
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import as_contraction, extent_of, is_injective, stores_of
from tilewright.schedule.rules.elementwise import instances, parallelize_outer
from tilewright.schedule.rules.products.tiles import Factors, Size, Tile, choose_tile
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.winograd.positions import (
    chooses_by_position,
    cut_tiles,
    indices_of_source,
    loops_within,
    walk_source,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Transformed(NamedTuple):
    """The blocks: chains of transforms, each of which reads the one before, and what they serve."""

    rows: list[str]
    columns: list[str]
    #: Sums over a block of the reduction, and over all blocks.
    parts: str
    total: str
    results: list[str]
    end: str


def _match(s: Schedule, _block: str, _target: Target) -> Transformed | None:
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
    return Transformed(rows, columns, parts, total, results, end)


def chain_before(s: Schedule, name: str | None) -> list[str]:
    """The transforms that end with a block."""
    chain: list[str] = []
    while name is not None and chooses_by_position(s.block_of(name)):
        chain.insert(0, name)
        makers = s.producers(name)
        name = makers[0].name if len(makers) == 1 else None
    return chain


def chain_after(s: Schedule, name: str) -> tuple[list[str], str | None]:
    """The transforms of what a block makes, and the block that takes the last ones on."""
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

    The transforms `results` lead there from the block `total`, which is the product itself or sums
    what it makes.
    """
    read = indices_of_source(s, results, end)
    found = [read[k] for k in _dimensions_of_blocks(s, product, total)]
    loops = loops_within(s, end, None)
    if len(found) != 1 or not isinstance(found[0], Var) or found[0] not in loops:
        raise RefusedError(f"{end} has no loop over blocks of the columns of {product}")
    return loops[found[0]]


def _dimensions_of_blocks(s: Schedule, product: str, total: str) -> list[int]:
    """Along which dimensions of what `total` makes columns go, but for those of a block."""
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


def _schedule(s: Schedule, _block: str, t: Transformed, target: Target) -> None:
    """Compute all of it for a block of columns at a time."""
    block = _cut_results(s, t, target)
    s.compute_at(t.total, block)
    depth = _cut_products(s, t, block, target)
    s.compute_at(t.columns[-1], depth)
    cut_tiles(s, t.columns[:-1], t.columns[-1], target, depth)
    work = sum(instances(s.block_of(n)) for n in t.rows)
    chain, rows = t.rows[:-1], t.rows[-1]
    outer = walk_source(s, chain, rows, cut_tiles(s, chain, rows, target))
    parallelize_outer(s, rows, target, work, within=outer)
    if target.cores > 1 and instances(s.block_of(t.parts)) > target.timing.fork_operations:
        s.parallel(block)


TRANSFORMED = Rule("transformed", _match, as_found, _schedule)


def _cut_results(s: Schedule, t: Transformed, target: Target) -> Loop:
    """The loop over blocks of channels of an image, around those over its tiles."""
    block = loop_over_blocks(s, t.parts, t.total, t.results, t.end)
    outer = cut_tiles(s, t.results, t.end, target)
    s.reorder(block, *(loop for loop in outer if loop != block))
    return block


def _cut_products(s: Schedule, t: Transformed, block: Loop, target: Target) -> Loop:
    """Tiles of sums over a block of the reduction; the innermost loop around such a block."""
    own, loops = s.block_of(t.total), loops_within(s, t.total, block)
    *_, row, column = (it for it in own.iters if it.kind == "spatial")
    (depth,) = (it for it in own.iters if it.kind == "reduce")
    *_, step = s.block_of(t.parts).iters
    dtype = stores_of(own)[0].buffer.dtype
    tile = product_tile(dtype, extent_of(row), column, step, target)
    panel, vectors, lanes = s.split(loops.pop(column.var), None, tile.vectors, tile.lanes)
    # There is no loop over a single block, or a single row.
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


def product_tile(dtype: DType, rows: int | None, column: Iter, step: Iter, target: Target) -> Tile:
    """The tile of a product with so many rows, `step` being the last of its reduction."""
    whole = (extent_of(step) or 1) % target.lanes(dtype) == 0
    factors: Factors = "depth" if whole else "broadcast"
    size = Size(rows, extent_of(column), extent_of(step))
    return choose_tile(target, dtype, size, factors, extent_of(column))


def cut_steps(s: Schedule, steps: list[Loop], tile: Tile) -> tuple[list[Loop], list[Loop]]:
    """Where lanes hold neighbouring steps of the reduction, these are to be unrolled."""
    if tile.factors != "depth":
        return steps, []
    outer, inner = s.split(steps[-1], None, tile.lanes)
    return [*steps[:-1], outer], [inner]


def _cut_parts(s: Schedule, t: Transformed, around: Loop, tile: Tile) -> None:
    """The sums over a block, in registers."""
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
