"""Products of small types by AMX: blocks of 16 × 16 sums in matrix registers.

The layouts of the tiles are those of `intrinsics.amx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Expr
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import TileProduct, tile_product_for
from tilewright.schedule.rules.epilogue import vectorize_tile
from tilewright.schedule.rules.products.packing import Layout
from tilewright.schedule.rules.products.product import (
    Product,
    ProductCut,
    as_product,
    begin_inlined_epilogue,
    used,
)
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The side of a matrix register of sums, in elements.
_SIDE = 16
#: Shapes of a block in tiles (rows × columns). Sums and operands together take at most 8 registers.
_SHAPES = ((2, 2), (1, 3), (3, 1))


@dataclass(frozen=True)
class AmxPlan:
    """The instruction, and the tiles of rows and columns in a block."""

    product: Product
    tiles: TileProduct
    rows: int
    columns: int


def _match(s: Schedule, name: str, target: Target) -> tuple[Product, TileProduct] | None:
    """The block as a product that AMX has an instruction for, if it is one."""
    product = as_product(s.block_of(name))
    tiles = tile_product_for(target, *product.types) if product is not None else None
    return None if product is None or tiles is None else (product, tiles)


def _plan(found: tuple[Product, TileProduct], _target: Target, choices: Choices) -> AmxPlan:
    product, tiles = found
    rows, columns = product.extents

    def use(shape: tuple[int, int]) -> float:
        return used(rows, shape[0] * _SIDE) * used(columns, shape[1] * _SIDE)

    shape = choices.choose("tiles", sorted(_SHAPES, key=use, reverse=True))
    return AmxPlan(product, tiles, *shape)


def _schedule(s: Schedule, name: str, plan: AmxPlan, target: Target) -> None:
    """Cut the block `name` by `plan` and compute it in matrix registers."""
    tiles = plan.tiles
    block = plan.rows * _SIDE, plan.columns * _SIDE, tiles.width
    cut = ProductCut(s, name, plan.product, block, target)
    cut.pad()
    rows, columns = cut.pack(
        Layout(_SIDE, tiles.width), Layout(_SIDE, tiles.group, tiles.width // tiles.group)
    )
    # Without an epilogue, the sums are stored from the registers straight to the result.
    is_bare = s.block_of(name).writes[0].buffer in s.function.buffers
    epilogue = [] if is_bare else begin_inlined_epilogue(s, name)
    sums = s.cache_write(name, 0, "tile").name
    s.transform_layout(name, 0, _squares)
    others, row, outside, column, runs, depth = cut.loops_by_role()
    chunk, blocks, down, i = s.split(row, None, cut.blocks_per_chunk(), plan.rows, _SIDE)
    panel, over, j = s.split(column, None, plan.columns, _SIDE)
    steps, k = s.split(depth, None, tiles.width)
    s.reorder(*others, chunk, *outside, panel, blocks, *runs, steps, down, over, i, j, k)
    start = s.decompose_reduction(name, (*runs, steps)[0]).name
    # Before tensorizing: the product's plain reads of rows still tell which rows a chunk needs.
    cut.place_rows(rows, chunk)
    cut.place_columns(columns)
    _load_tiles(s, name, steps)
    _store_tiles(s, sums, blocks, tiles)
    _place_results(s, epilogue, blocks)
    _compute_by(s, s.loops(start)[-4:], f"amx.zero.{tiles.out.short}")
    _compute_by(s, [down, over, i], f"amx.{tiles.name}")
    cut.parallelize([*others, chunk])


AMX = Rule("amx", _match, _plan, _schedule)


def _squares(*at: Expr) -> tuple[Expr, ...]:
    *rest, i, j = at
    return (*rest, i // _SIDE, j // _SIDE, i % _SIDE * _SIDE + j % _SIDE)


def _load_tiles(s: Schedule, name: str, steps: Loop) -> None:
    """Load both operands into registers once per step of the reduction."""
    for buffer in [r.buffer for r in s.block_of(name).reads if r.buffer.scope != "tile"]:
        copy = s.cache_read(name, buffer, "tile").name
        *outer, whole = s.compute_at(copy, steps)
        for loop in outer:
            s.unroll(loop)
        s.tensorize(whole, f"amx.load.{buffer.dtype.short}")


def _store_tiles(s: Schedule, sums: str, blocks: Loop, tiles: TileProduct) -> None:
    *_, i, j = s.reverse_compute_at(sums, blocks)
    down, i = s.split(i, None, _SIDE)
    over, j = s.split(j, None, _SIDE)
    s.reorder(down, over, i, j)
    _compute_by(s, [down, over, i], f"amx.store.{tiles.out.short}")


def _place_results(s: Schedule, names: list[str], blocks: Loop) -> None:
    """Compute the epilogue row by row: by then the sums are in memory."""
    for name in names:
        if s.can("reverse_compute_at", name, blocks):
            vectorize_tile(s, s.reverse_compute_at(name, blocks)[-1:], _SIDE)


def _compute_by(s: Schedule, loops: Sequence[Loop], intrin: str) -> None:
    """Unroll the loops over tiles and replace what is below them by one instruction."""
    down, over, i, *_ = loops
    s.unroll(down)
    s.unroll(over)
    s.tensorize(i, intrin)
