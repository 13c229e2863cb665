"""How a sum of products is cut: which variables carry the tile, and which operands are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import NamedTuple

from tilewright.ir import Block, Buffer, Iter, Var, const
from tilewright.schedule.rules.analysis import (
    GATHERS,
    Access,
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
)
from tilewright.schedule.rules.chunks import GatheredRows
from tilewright.schedule.rules.tiles import ANY_ROWS, Factors, Size, Tile, choose_tile, packing_pays
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Rows that lie further apart than this (in bytes) are packed: they would fight for cache sets.
_FAR = 1024
#: An operand is packed only if every element of it is used at least this often.
_WORTH_PACKING = 32
#: Up to so many rows the weights are read once for, which takes longer than the arithmetic.
_FEW_ROWS = 16
#: Vectors of a tile where it is not known how many there are: little is computed past the last one.
_ANY_VECTORS = 2
#: Smaller squares are not worth turning.
_LEAST_SIDE = 4
#: What an extent that is not known counts as.
UNKNOWN = 256


class Operands(NamedTuple):
    """Buffers that may be laid out as it suits: constants, and the copies that gather rows."""

    constants: frozenset[Buffer] = frozenset()
    gathered: frozenset[Buffer] = frozenset()

    @staticmethod
    def of(s: Schedule) -> Operands:
        blocks = [s.block_of(b) for b in s.blocks()]
        copies = [b for b in blocks if GATHERS in b.annotations]
        made = frozenset(b.writes[0].buffer for b in copies)
        return Operands(constants_of(s.function), made)


@dataclass(frozen=True)
class Plan:
    """How a contraction is cut: which variables carry the tile, and what is packed."""

    contraction: Contraction
    row: Iter | None
    #: The variable that walks neighbouring elements, and the one over blocks of it, if any.
    column: Iter
    blocks: Iter | None
    tile: Tile
    pack_rows: bool
    pack_columns: bool
    #: Where a block before it gathers the rows: how these are cut.
    gathered: GatheredRows | None = None


def plan_contraction(block: Block, target: Target, known: Operands) -> Plan | None:
    """A plan, or None where the block is no contraction that fits a tile."""
    c = as_contraction(block)
    if c is None or not c.reduced:
        return None
    column = next((it for it in c.columns if c.out.step(it.var) == 1), None)
    if column is None:
        return None
    row, depth = _row_of(c.rows), c.reduced[-1]
    blocks = next((it for it in reversed(c.columns) if it is not column), None)
    # Constants are packed once and for all, which costs nothing when it counts.
    free_rows = c.a.buffer in known.constants and _can_pack(c.a)
    gathered = _gathered_rows(c, row, target) if c.a.buffer in known.gathered else None
    pack_rows = row is not None and not gathered and (free_rows or _packs_rows(c, row))
    contiguous = c.b.step(column.var) == 1
    if not contiguous and not _can_pack(c.b):
        return None
    free_columns = c.b.buffer in known.constants and _can_pack(c.b)
    ragged = (extent_of(column) or 0) % target.lanes(c.b.buffer.dtype) != 0
    pack_columns = free_columns or _packs(c.b, depth.var, c.rows, ragged) or not contiguous
    dtype = c.out.buffer.dtype
    lanes = target.lanes(dtype)
    plain: Factors = "broadcast"
    if c.a.step(depth.var) == 1 and (extent_of(depth) or 0) % target.lanes("float32") == 0:
        plain = "depth"

    size = Size(
        1 if row is None else extent_of(row) or ANY_ROWS,
        count_of(c.columns) if blocks is not None else extent_of(column) or _ANY_VECTORS * lanes,
        count_of(c.reduced),
    )

    def best(factors: Factors) -> Tile:
        block = None if blocks is None else extent_of(column)
        computed = None if gathered is None else gathered.computed
        return choose_tile(target, dtype, size, factors, block, computed)

    tile = best("rows" if pack_rows else plain)
    if pack_rows and not free_rows:
        spread = best(plain)
        whole = Size(count_of(c.rows), count_of(c.columns), size.depth)
        pack_rows = packing_pays(target, dtype, tile, spread, whole)
        tile = tile if pack_rows else spread
    packs_rows = pack_rows or gathered is not None
    return Plan(c, row, column, blocks, tile, packs_rows, pack_columns, gathered)


def _row_of(rows: tuple[Iter, ...]) -> Iter | None:
    """The last variable of the rows that is long enough for a tile, else the longest."""
    long = [it for it in rows if (extent_of(it) or UNKNOWN) >= 4]
    if long:
        return long[-1]
    return max(rows, key=lambda it: extent_of(it) or UNKNOWN, default=None)


def _packs_rows(c: Contraction, row: Iter) -> bool:
    """Whether rows are packed when the kernel runs: not where there may be just a few of them."""
    many = (extent_of(row) or 0) > _FEW_ROWS
    return many and _packs(c.a, row.var, c.columns)


def _packs(access: Access, var: Var, users: tuple[Iter, ...], ragged: bool = False) -> bool:
    """Whether neighbours along `var` lie so far apart, and are used so often, that packing pays.

    It pays as well where the last vector of each row is not whole and would be masked.
    """
    step = access.step(var)
    far = step is None or abs(step) * access.buffer.dtype.itemsize >= _FAR
    return (far or ragged) and count_of(users) >= _WORTH_PACKING and _can_pack(access)


def _gathered_rows(c: Contraction, row: Iter | None, target: Target) -> GatheredRows | None:
    rows = None if row is None else extent_of(row)
    size = count_of(c.reduced) * c.a.buffer.dtype.itemsize
    return None if rows is None else GatheredRows(rows, size, target)


def _can_pack(access: Access) -> bool:
    """Whether every index is a variable of its own: a copy then has the same shape."""
    pairs = zip(access.indices, access.buffer.shape, strict=True)
    return all(isinstance(i, Var) or d is const(1) for i, d in pairs)


def can_turn(plan: Plan) -> bool:
    """Whether packing rows turns a plain matrix, by squares that are worth it."""
    return _is_plain(plan) and turned_side(plan.tile) >= _LEAST_SIDE


def copies_rows(plan: Plan, constants: frozenset[Buffer]) -> bool:
    """Whether packing rows only brings them near each other, each from end to end.

    Instructions that repeat a scalar from memory in all lanes take it from anywhere.
    """
    return (
        plan.tile.factors == "broadcast"
        and _is_plain(plan)
        and plan.contraction.a.buffer not in constants
    )


def _is_plain(plan: Plan) -> bool:
    """Whether the rows are those of a plain matrix."""
    c = plan.contraction
    wanted = (None if plan.row is None else plan.row.var, c.reduced[-1].var)
    return all(i is v for i, v in zip(c.a.indices[-2:], wanted, strict=True))


def turned_side(tile: Tile) -> int:
    """Rows and columns of the squares that packing turns: they lie inside of one tile's rows."""
    return gcd(tile.rows, tile.lanes)


def count_of(iters: Sequence[Iter]) -> int:
    return prod(extent_of(it) or UNKNOWN for it in iters)
