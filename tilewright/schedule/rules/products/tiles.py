"""How large a tile of accumulators to keep in registers: an analytic model of one core.

A tile has `rows` × `vectors` accumulators. For every step of the reduction it loads `vectors`
vectors of one operand and `rows` scalars of the other, and does rows × vectors multiply-adds. The
model counts cycles on the multiply-add and load ports, at least as many as the latency of a chain
of multiply-adds, and charges for lanes and rows beyond the edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tilewright.ir import DType
from tilewright.target import Caches, Target

#: How the scalars of the row operand reach the multiply-add.
#:   broadcast  one load each (on x86 part of the instruction)
#:   rows       neighbouring rows are contiguous: one vector load serves several, by lane
#:   depth      neighbouring steps of the reduction are contiguous: likewise for several steps
Factors = Literal["broadcast", "rows", "depth"]
#: The fraction of a packed panel that should hold real columns, not padding.
_WELL_USED = 0.95
#: Rows of a tile where their number is known only at run time: few, because every number of
#: leftover rows gets a version of its own.
ANY_ROWS = 7
#: The most rows and vectors of a tile.
_MOST_ROWS, _MOST_VECTORS = 16, 8


class Size(NamedTuple):
    """The extents of a contraction; None for large ones."""

    rows: int | None = None
    columns: int | None = None
    #: Steps of the reduction.
    depth: int | None = None


@dataclass(frozen=True)
class Tile:
    """Accumulators of a contraction: rows × vectors of `lanes`."""

    rows: int
    vectors: int
    lanes: int
    factors: Factors

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def choose_tile(
    target: Target,
    dtype: DType,
    size: Size,
    factors: Factors,
    block: int | None = None,
    computed: Callable[[int], int] | None = None,
    whole: int = 0,
    together: int = 1,
) -> Tile:
    """The tile with the best predicted throughput for a problem of this size (`rank_tiles`)."""
    return rank_tiles(target, dtype, size, factors, block, computed, whole, together)[0]


def rank_tiles(
    target: Target,
    dtype: DType,
    size: Size,
    factors: Factors,
    block: int | None = None,
    computed: Callable[[int], int] | None = None,
    whole: int = 0,
    together: int = 1,
) -> list[Tile]:
    """The tiles for a problem of this size, the best predicted throughput first.

    Where columns come in separate blocks of `block`, a tile covers whole blocks, or divides one
    evenly. `computed` gives the rows computed in all with tiles of a height, padding included,
    where that is not simply whole tiles. The height divides `whole`; the vectors of a tile are a
    multiple of `together`.
    """
    lanes = target.lanes(dtype)
    if not target.has_lane_fma:
        factors = "broadcast"
    most_rows = min(size.rows or _MOST_ROWS, _MOST_ROWS)
    wanted = -(-(size.columns or _MOST_VECTORS * lanes) // lanes)
    most_vectors = max(together, min(wanted, _MOST_VECTORS))
    tiles = [
        Tile(r, v, lanes, factors)
        for r in range(1, most_rows + 1)
        for v in range(together, most_vectors + 1, together)
        if whole % r == 0
        if _registers(r, v, lanes, factors) <= target.vector_registers
    ]
    even = [t for t in tiles if _fits_blocks(t.columns, block)]
    # For blocks of odd widths, a tile takes one block, whose last vector is partly used.
    single = [t for t in tiles if (t.vectors - 1) * lanes < (block or 0)]

    def score(tile: Tile) -> float:
        if computed is None or size.rows is None:
            return _score(tile, target, dtype, size)
        every = _score(tile, target, dtype, size._replace(rows=None))
        return every * size.rows / computed(tile.rows)

    return sorted(even or single, key=score, reverse=True)


def packing_pays(target: Target, dtype: DType, packed: Tile, spread: Tile, size: Size) -> bool:
    """Whether tiles of packed rows, including packing, are faster than tiles of strided rows."""
    busy = (size.columns or 1) / (target.fma_ports * packed.lanes)
    gained = _score(packed, target, dtype, size) * busy / (busy + target.timing.pack_cycles)
    return gained >= _score(spread, target, dtype, size, target.timing.conflict_cycles)


def steps_ahead(target: Target, tile: Tile, dtype: DType, depth: int) -> int:
    """How many steps of the reduction ahead packed operands are prefetched.

    0 where they fit L1, or where prefetches would take issue slots from multiply-adds.
    """
    timing, cycles = target.timing, max(1, tile.rows * tile.vectors // target.fma_ports)
    sides = [side * dtype.itemsize for side in (tile.rows, tile.columns)]
    lines = sum(-(-side // target.caches.line) for side in sides)
    loads = tile.vectors + tile.rows
    busy = tile.rows * tile.vectors + loads + timing.loop_instructions
    spare = timing.issue_width * cycles - busy
    is_far = 2 * depth * sum(sides) > target.caches.l1d
    return -(-timing.fetch_latency // cycles) if is_far and lines <= spare else 0


def packed_columns(target: Target, dtype: DType | str, columns: int | None = None) -> int:
    """How many columns of a product's right operand are best packed side by side.

    Where the number of `columns` is known, the last panel is kept well filled.
    """
    dtype = DType.of(dtype)
    best = choose_tile(target, dtype, Size(), "rows").columns
    if _used(columns, best) >= _WELL_USED:
        return best
    return choose_tile(target, dtype, Size(columns=columns), "rows").columns


def _fits_blocks(columns: int, block: int | None) -> bool:
    return block is None or columns % block == 0 or block % columns == 0


def _registers(rows: int, vectors: int, lanes: int, factors: Factors) -> int:
    held = {"broadcast": 1, "rows": -(-rows // lanes), "depth": rows}[factors]
    return rows * vectors + vectors + held


def _score(tile: Tile, target: Target, dtype: DType, size: Size, far: float = 0.0) -> float:
    """Useful multiply-adds per cycle; loads of rows take `far` cycles longer."""
    timing, work = target.timing, tile.rows * tile.vectors
    scalars = tile.rows if tile.factors == "broadcast" else tile.rows / tile.lanes
    loads = tile.vectors + scalars
    chain = target.fma_ports * target.fma_latency
    near, far_off = _traffic(tile, target.caches, dtype.itemsize, size)
    ports = max(work / target.fma_ports, loads / timing.load_ports, chain / target.fma_ports)
    cycles = max(ports, far_off / timing.l3_bytes_per_cycle)
    overhead = timing.load_cycles * loads + far * scalars + timing.loop_cycles
    cycles += overhead + near * timing.l2_cycles_per_byte
    uneven = tile.factors == "rows" and tile.rows % tile.lanes
    useful = _used(size.rows, tile.rows) * _used(size.columns, tile.columns)
    return work / cycles * useful * (timing.partial_vector_rate if uneven else 1.0)


def _traffic(tile: Tile, caches: Caches, itemsize: int, size: Size) -> tuple[float, int]:
    """Bytes per step that come from L2, and those from beyond it.

    Rows are streamed unless all of them fit L1; the columns of a tile are reused by the next rows,
    from the cache that they fit.
    """
    rows, columns = tile.rows * itemsize, tile.columns * itemsize
    if size.depth is None:
        return rows + columns, 0
    if size.depth * (rows + columns) > caches.l1d:
        return rows + columns, columns if 3 * size.depth * columns > 2 * caches.l2 else 0
    if size.rows is None:
        return rows, 0
    passing = 0 if 2 * size.rows * size.depth * itemsize <= caches.l1d else rows
    return passing + columns / -(-size.rows // tile.rows), 0


def _used(extent: int | None, tile: int) -> float:
    """The useful fraction of the tiles that cover an extent."""
    if extent is None:
        return 1.0
    return extent / (-(-extent // tile) * tile)
