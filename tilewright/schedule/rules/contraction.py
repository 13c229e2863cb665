"""Sums of products (matrix products, convolutions): a tile of the output in registers.

    for chunk of rows (parallel):
        pack the rows, if they lie apart
        for block of columns: for tile of rows:
            accumulators = 0
            for the reduction: accumulators += rows × columns        all in registers
            output = epilogue(accumulators)

Operands that would be read with long strides are packed into the order in which the tiles read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Block, Const, Expr, Iter, Var
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import Access, Contraction, as_contraction, extent_of
from tilewright.schedule.rules.tiles import Factors, Tile, choose_tile
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Rows that lie further apart than this (in bytes) are packed: they would fight for cache sets.
_FAR = 1024
#: An operand is packed only if every element of it is used at least this often.
_WORTH_PACKING = 4
#: Multiply-adds that are worth waking another thread for.
_PARALLEL_WORTH = 100_000


@dataclass(frozen=True)
class Plan:
    """How a contraction is cut: which variables carry the tile, and what is packed."""

    row: Iter | None
    column: Iter
    tile: Tile
    pack_rows: bool
    pack_columns: bool


def plan_contraction(block: Block, c: Contraction, target: Target) -> Plan | None:
    """A plan, or None where no variable walks neighbouring elements of the output."""
    column = next((it for it in c.columns if c.out.step(it.var) == 1), None)
    if column is None:
        return None
    row = _widest(c.rows)
    depth = c.reduced[-1] if c.reduced else None
    uses_of_columns = _product(c.rows)
    uses_of_rows = _product(c.columns)
    apart = row is not None and _bytes(c.a, row.var) >= _FAR
    pack_rows = apart and uses_of_rows >= _WORTH_PACKING * 16
    contiguous = c.b.step(column.var) == 1
    reuse = uses_of_columns >= _WORTH_PACKING * 8
    far = depth is not None and _bytes(c.b, depth.var) >= _FAR
    pack_columns = reuse and (far or not contiguous)
    factors: Factors = "broadcast"
    if pack_rows:
        factors = "rows"
    elif depth is not None and c.a.step(depth.var) == 1:
        factors = "depth"
    rows = extent_of(row) if row is not None else 1
    tile = choose_tile(target, c.out.buffer.dtype, rows, extent_of(column), factors)
    return Plan(row, column, tile, pack_rows, pack_columns)


def _widest(rows: tuple[Iter, ...]) -> Iter | None:
    """The last variable of the rows that is long enough, else the longest."""
    known = [(extent_of(it) or 1 << 20, it) for it in rows]
    if not known:
        return None
    good = [it for extent, it in known if extent >= 4]
    return good[-1] if good else max(known, key=lambda k: k[0])[1]


def _bytes(access: Access, var: Var) -> int:
    """Bytes between neighbours along a variable; a great number where they are unknown."""
    step = access.step(var)
    return 1 << 30 if step is None else abs(step) * access.buffer.dtype.itemsize


def _product(iters: tuple[Iter, ...]) -> int:
    count = 1
    for it in iters:
        count *= extent_of(it) or 256
    return count
