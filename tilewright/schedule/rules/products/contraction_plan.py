"""How a contraction is cut: which variables carry the tile, and which operands are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Literal, NamedTuple

from tilewright.ir import Binary, Iter, Var, const
from tilewright.schedule.primitives.buffers.merge_dimensions import GATHERS
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    accesses_of,
    as_contraction,
    constants_of,
    extent_of,
)
from tilewright.schedule.rules.products.chunks import Chunks, GatheredRows
from tilewright.schedule.rules.products.tiles import (
    ANY_ROWS,
    Factors,
    Size,
    Tile,
    packing_pays,
    rank_tiles,
    steps_ahead,
)
from tilewright.schedule.rules.rule import MOST, Choices
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Vectors of a tile where the number of columns is known only at run time: few, so that little is
#: computed past the last column.
_ANY_VECTORS = 2
#: The largest fraction of L2 for panels of columns beside the rows, where the reduction is cut into
#: parts; and for the sums that all parts update, with gathered rows and with those of a matrix.
_PANELS, _GATHERED_SUMS, _SUMS = 0.4, 0.25, 1.0
#: The value assumed for an extent that is known only at run time.
UNKNOWN = 256
#: The fewest steps of a reduction that is unrolled, and the most multiply-adds per step: tiles that
#: fill the registers of AVX-512 lose 1 to 3 % when unrolled.
_LEAST_STEPS, _LARGEST_UNROLLED = 32, 14
#: Parts of columns are chosen when chunks of rows are this many times slower.
_UNEVEN = 1.03
#: A prefetch distance for searches to try where the rule prefetches nothing.
_AHEAD = 8
#: The outer loop runs over tiles of columns, which then stay in the cache while rows are streamed,
#: or over tiles of rows.
_ORDERS: Final[tuple[Literal["columns", "rows"], ...]] = ("columns", "rows")


class TiledProduct(NamedTuple):
    """A contraction that fits tiles: the variables that carry them, and its operands."""

    contraction: Contraction
    row: Iter | None
    #: The variable over contiguous columns, and the one over blocks of columns, if any.
    column: Iter
    blocks: Iter | None
    #: Constants are packed once, when the model is loaded, which costs nothing at run time.
    has_constant_rows: bool
    has_constant_columns: bool
    #: Whether a preceding block gathers the rows (`gather_rows`).
    is_gathered: bool
    #: Multiply-adds in all.
    instances: int
    #: Whether consumers index the rows of all batches as one dimension, as after a grouped
    #: convolution: they are fused into tiles that end with the rows of a batch.
    are_rows_joined: bool

    @property
    def variables(self) -> dict[str, Any]:
        """The fields that a plan takes over."""
        return {name: getattr(self, name) for name in ("contraction", "row", "column", "blocks")}


@dataclass(frozen=True)
class ContractionPlan:
    """How a contraction is cut, what is packed, and the work of threads."""

    contraction: Contraction
    row: Iter | None
    column: Iter
    blocks: Iter | None
    tile: Tile
    #: Parts of the reduction, summed one after the other, each for all tiles.
    parts: int
    pack_rows: bool
    pack_columns: bool
    #: How gathered rows are cut, where a preceding block gathers them.
    gathered: GatheredRows | None
    #: Whether the work is worth several threads.
    is_parallel: bool
    #: Whether threads take parts of the columns rather than chunks of rows.
    share_columns: bool
    #: Tiles of rows that are packed and used together; 0 where rows are not packed.
    chunk: int
    #: How many steps of the reduction are unrolled, where each multiplies by scalars.
    unroll: int
    #: How many steps of the reduction ahead packed operands are prefetched; 0 for none.
    prefetch: int
    #: Whether the columns of the next tile are prefetched while rows use the present one.
    prefetch_next: bool
    #: Which tiles the outer loop runs over.
    order: Literal["columns", "rows"]

    @property
    def tiled(self) -> set[Var]:
        """The variables that carry the tile."""
        return {it.var for it in (self.row, self.column, self.blocks) if it is not None}


def find_tiled(s: Schedule, name: str) -> TiledProduct | None:
    """The block as a contraction that fits tiles, if it is one."""
    block = s.block_of(name)
    c = as_contraction(block)
    if c is None or not c.reduced:
        return None
    column = next((it for it in c.columns if c.out.step(it.var) == 1), None)
    if column is None or (c.b.step(column.var) != 1 and not _can_pack(c.b)):
        return None
    blocks = next((it for it in reversed(c.columns) if it is not column), None)
    constants = constants_of(s.function)
    makers = [s.block_of(b) for b in s.producers(name)]
    gathers = [b for b in makers if GATHERS in b.annotations]
    row = _row_of(c.rows)
    return TiledProduct(
        c,
        row,
        column,
        blocks,
        c.a.buffer in constants,
        c.b.buffer in constants,
        any(b.writes[0].buffer is c.a.buffer for b in gathers),
        count_of(block.iters),
        bool(c.batch) and row is not None and _joins(s, name, c.out, row),
    )


def _joins(s: Schedule, name: str, out: Access, row: Iter) -> bool:
    """Whether consumers of a result compute its row as a remainder (`floormod`)."""
    axes = [k for k, index in enumerate(out.indices) if index is row.var]
    reads = [a for b in s.consumers(name) for a in accesses_of(s.block_of(b.name))]
    found = [a.indices[k] for a in reads if a.buffer is out.buffer for k in axes]
    return any(isinstance(e, Binary) and e.op == "floormod" for e in found)


def plan_contraction(found: TiledProduct, target: Target, choices: Choices) -> ContractionPlan:
    """How such a contraction is best computed on one core, or on several."""
    return _Planner(found, target, choices).plan()


class _Planner:
    """Takes the decisions one after the other."""

    def __init__(self, found: TiledProduct, target: Target, choices: Choices) -> None:
        self.found, self.target, self.choices = found, target, choices
        self.c, self.dtype = found.contraction, found.contraction.out.buffer.dtype
        self.gathered = _gathered_rows(found, target)
        #: Steps of the reduction; later of one part of it.
        self.depth = count_of(self.c.reduced)

    def plan(self) -> ContractionPlan:
        found, choose = self.found, self.choices.choose
        pack_rows, tiles = self._rows()
        tile = choose("tile", tiles[:MOST])
        parts = choose("parts", self._parts(tile, pack_rows or self.gathered is not None))
        pack_columns = choose("pack_columns", self._columns())
        is_parallel = self.target.cores > 1 and self._cycles(tile) >= self.target.timing.fork_cycles
        self.depth //= parts
        share_columns = choose("share_columns", self._shares(tile, pack_rows and is_parallel))
        pack_rows |= self.gathered is not None
        chunk = choose("chunk", self._chunks(tile, share_columns) if pack_rows else (0,))
        unroll = choose("unroll", self._unrolls(tile, parts))
        prefetch = choose("prefetch", self._prefetches(tile, pack_rows, pack_columns))
        order: Literal["columns", "rows"] = choose("order", _ORDERS)
        prefetch_next = choose("prefetch_next", self._prefetches_next(order))
        return ContractionPlan(
            *found[:4],
            tile,
            parts,
            pack_rows,
            pack_columns,
            self.gathered,
            is_parallel,
            share_columns,
            chunk,
            unroll,
            prefetch,
            prefetch_next,
            order,
        )

    # ---- rows, and the tile ---------------------------------------------------------------------

    def _rows(self) -> tuple[bool, list[Tile]]:
        """Whether rows are packed, and the tiles in that case, the best first."""
        c, row = self.c, self.found.row
        is_free = self.found.has_constant_rows and _can_pack(c.a)
        can = row is not None and self.gathered is None
        packs = can and (is_free or (row is not None and _packs_rows(c, row, self.target)))
        if packs and not is_free:
            packed, spread = self._tiles(packs=True)[0], self._tiles(packs=False)[0]
            whole = Size(count_of(c.rows), count_of(c.columns), count_of(c.reduced))
            packs = packing_pays(self.target, self.dtype, packed, spread, whole)
        candidates = (packs, not packs) if can and _can_pack(c.a) else (packs,)
        packs = self.choices.choose("pack_rows", candidates)
        return packs, self._tiles(packs=packs)

    def _tiles(self, *, packs: bool) -> list[Tile]:
        c, row, column, target = self.c, self.found.row, self.found.column, self.target
        depth, is_blocked = c.reduced[-1], self.found.blocks is not None
        factors: Factors = "rows" if packs else "broadcast"
        is_near = c.a.step(depth.var) == 1 and (extent_of(depth) or 0) % target.lanes("f32") == 0
        if not packs and is_near:
            factors = "depth"
        lanes = target.lanes(self.dtype)
        size = Size(
            1 if row is None else extent_of(row) or ANY_ROWS,
            count_of(c.columns) if is_blocked else extent_of(column) or _ANY_VECTORS * lanes,
            count_of(c.reduced),
        )
        block = extent_of(column) if is_blocked else None
        computed = None if self.gathered is None else self.gathered.computed
        whole = size.rows or 0 if self.found.are_rows_joined else 0
        return rank_tiles(target, self.dtype, size, factors, block, computed, whole)

    def _parts(self, tile: Tile, pack_rows: bool) -> list[int]:
        """Candidate numbers of parts of the reduction, the best first.

        The present and the next panel then fit L2 beside the rows of a part. Each part updates all
        sums: these must not be so many that reading and writing them costs more than that saves.
        """
        c, first, l2 = self.c, extent_of(self.c.reduced[0]), self.target.caches.l2
        others = [it for it in (*c.batch, *c.rows) if it is not self.found.row]
        sums = count_of((*c.rows, *c.columns)) * self.dtype.itemsize
        most = l2 * (_SUMS if self.gathered is None else _GATHERED_SUMS)
        is_near = count_of(others) == 1 and sums <= most
        if first is None or not (pack_rows and self.found.has_constant_columns and is_near):
            return [1]
        panels = 2 * tile.columns * self.depth * c.b.buffer.dtype.itemsize
        fits = [n for n in range(1, first + 1) if first % n == 0]
        own = next((n for n in fits if panels <= l2 * n * _PANELS), first) if panels > l2 else 1
        return [own, *(n for n in (1, 2, 4, 8) if n != own and n in fits)]

    # ---- columns --------------------------------------------------------------------------------

    def _columns(self) -> tuple[bool, ...]:
        """Whether columns are packed: the best choice first."""
        c, column = self.c, self.found.column
        if c.b.step(column.var) != 1:
            return (True,)
        is_free = self.found.has_constant_columns and _can_pack(c.b)
        ragged = (extent_of(column) or 0) % self.target.lanes(c.b.buffer.dtype) != 0
        packs = is_free or _packs(c.b, c.reduced[-1].var, c.rows, self.target, ragged)
        return (packs, not packs) if _can_pack(c.b) else (packs,)

    # ---- threads --------------------------------------------------------------------------------

    def _cycles(self, tile: Tile) -> float:
        """Cycles of one thread: multiply-adds, or reading the columns where rows are few."""
        c = self.c
        columns = count_of((*c.batch, *c.columns, *c.reduced))
        read = columns * c.b.buffer.dtype.itemsize / self.target.timing.read_bytes_per_cycle
        return max(self.found.instances / (self.target.fma_ports * tile.lanes), read)

    def _shares(self, tile: Tile, packs_in_parallel: bool) -> tuple[bool, ...]:
        """Whether parts of the columns balance threads better than chunks of rows: best first."""
        c, row, cores = self.c, self.found.row, self.target.cores
        width = extent_of(self.found.column)
        if not packs_in_parallel or width is None or len(c.columns) > 1:
            return (False,)
        if self.found.has_constant_rows:
            return (False,)
        tiles, panels = self._row_tiles(tile), -(-width // tile.columns)
        others = count_of([it for it in (*c.batch, *c.rows) if it is not row])
        chunks, size = self._cut(tile), self._tiles_per_chunk(tile, cores)
        busiest = -(-others * -(-tiles // size) // cores) * size / (others * tiles)
        by_rows = busiest * (1 + chunks.waits(size))
        waits = chunks.waits(self._tiles_per_chunk(tile, 1))
        by_columns = -(-panels // cores) / panels * (1 + waits)
        shares = by_rows > by_columns * _UNEVEN
        return shares, not shares

    # ---- chunks and prefetches ------------------------------------------------------------------

    def _chunks(self, tile: Tile, share_columns: bool) -> list[int]:
        """Candidate numbers of tiles of rows that are packed together, the best first."""
        if self.gathered is not None:
            own = self.gathered.tiles_per_chunk(tile.rows)
        else:
            own = self._tiles_per_chunk(tile, 1 if share_columns else self.target.cores)
        others = (own // 2, own * 2, own // 4, own * 4)
        return [own, *(n for n in others if 0 < n <= self._row_tiles(tile))]

    def _tiles_per_chunk(self, tile: Tile, cores: int) -> int:
        return self._cut(tile).best(self._row_tiles(tile), cores)

    def _cut(self, tile: Tile) -> Chunks:
        c = self.c
        return Chunks(tile, c.a.buffer.dtype.itemsize, self.depth, self.target)

    def _row_tiles(self, tile: Tile) -> int:
        assert self.found.row is not None
        return -(-(extent_of(self.found.row) or 4096) // tile.rows)

    def _unrolls(self, tile: Tile, parts: int) -> list[int]:
        """Candidate numbers of unrolled steps of the reduction, the best first.

        Loop control costs where another tenant's hyperthread takes half of the core's issue slots.
        Processors without an L2 are small: no hyperthreads, and little room for code.
        """
        last = extent_of(self.c.reduced[-1]) or 1
        steps = last // parts if len(self.c.reduced) == 1 else last
        is_small = self.target.caches.l2 == 0
        if tile.factors != "broadcast" or is_small or steps < _LEAST_STEPS:
            return [1]
        fits = [n for n in (8, 4, 2, 1) if steps % n == 0]
        own = fits[0] if tile.rows * tile.vectors <= _LARGEST_UNROLLED else 1
        return [own, *(n for n in fits if n != own)]

    def _prefetches(self, tile: Tile, pack_rows: bool, pack_columns: bool) -> list[int]:
        c = self.c
        # Columns may be packed already: then the steps of a tile are contiguous.
        are_packed = pack_columns or c.b.step(c.reduced[-1].var) == tile.columns
        if not pack_rows or not are_packed or self.gathered is not None:
            return [0]
        own = steps_ahead(self.target, tile, self.dtype, count_of(c.reduced))
        return [own, *(n for n in (0, own // 2, own * 2, _AHEAD) if n != own)]

    def _prefetches_next(self, order: str) -> tuple[bool, ...]:
        """Whether to prefetch the next tile of columns: if it comes from beyond L2.

        Constants do: the model's other weights have passed through the caches since the last run.
        """
        size = count_of((*self.c.columns, *self.c.reduced)) * self.c.b.buffer.dtype.itemsize
        is_far = self.found.has_constant_columns or size > self.target.caches.l2 // 2
        can = order == "columns" and self.found.row is not None and self.target.caches.l2 > 0
        return (is_far, not is_far) if can else (False,)


def _row_of(rows: tuple[Iter, ...]) -> Iter | None:
    """The last of the rows' variables that is long enough for a tile, else the longest.

    The first of several counts as 1 where its extent is unknown: usually it is the batch.
    """
    lengths = [extent_of(it) or UNKNOWN for it in rows]
    if len(rows) > 1 and extent_of(rows[0]) is None:
        lengths[0] = 1
    long = [it for it, length in zip(rows, lengths, strict=True) if length >= 4]
    if long:
        return long[-1]
    return max(zip(lengths, rows, strict=True), key=lambda pair: pair[0], default=(0, None))[1]


def _packs_rows(c: Contraction, row: Iter, target: Target) -> bool:
    """Whether rows are packed at run time: only where there are certainly many of them."""
    many = (extent_of(row) or 0) > target.timing.memory_bound_rows
    return many and _packs(c.a, row.var, c.columns, target)


def _packs(
    access: Access, var: Var, users: tuple[Iter, ...], target: Target, ragged: bool = False
) -> bool:
    """Whether packing pays: elements are used often, and either the stride along `var` is long or
    the last vector of each row would be partial (`ragged`) and masked."""
    step = access.step(var)
    stride = None if step is None else abs(step) * access.buffer.dtype.itemsize
    far = stride is None or stride >= target.timing.conflict_stride
    often = count_of(users) >= target.timing.pack_uses
    return (far or ragged) and often and _can_pack(access)


def _gathered_rows(found: TiledProduct, target: Target) -> GatheredRows | None:
    c, row = found.contraction, found.row
    rows = None if row is None or not found.is_gathered else extent_of(row)
    size = count_of(c.reduced) * c.a.buffer.dtype.itemsize
    return None if rows is None else GatheredRows(rows, size, target)


def _can_pack(access: Access) -> bool:
    """Whether every index is a single variable: a copy then has the same shape."""
    pairs = zip(access.indices, access.buffer.shape, strict=True)
    return all(isinstance(i, Var) or d is const(1) for i, d in pairs)


def count_of(iters: Sequence[Iter]) -> int:
    return prod(extent_of(it) or UNKNOWN for it in iters)
