"""Transposes: rows of the source become columns of the result, by tiles through registers.

for u: for v: D[v', u'] = S[u, v]
-->
for tiles: load a tile by rows of the source, interleave, store it by rows of the result
what is left at the edges, by smaller tiles, and then element by element
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.ir import Binary, Block, Const, DType, Iter, Load, Store
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import PART_BYTES, transpose_tile
from tilewright.schedule.rules.analysis import (
    Access,
    extent_of,
    has_own_loops,
    is_injective,
    stores_of,
)
from tilewright.schedule.rules.elementwise import (
    instances,
    parallelize_outer,
    vectorize_innermost,
)
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.stream import streams
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tensor_intrin import TensorIntrin
from tilewright.target import Target

#: What an element costs, in simple operations.
_WORK = 4
#: What an extent that is known only when the program runs counts as.
_MANY = 1024


class Transpose(NamedTuple):
    """The variables along which neighbours lie in the source, and in the result."""

    source: Iter
    result: Iter
    #: So many neighbours lie together in the source, as blocked channels do; 0 where all do.
    block: int = 0


def as_transpose(block: Block) -> Transpose | None:
    """The block as a copy whose source and result run along different variables."""
    stores = stores_of(block)
    if len(stores) != 1 or not is_injective(block) or not isinstance(stores[0].value, Load):
        return None
    store, load = stores[0], stores[0].value
    inner, outer = _runs_along(block, store), _runs_along(block, load)
    if inner is None or inner is outer:
        return None
    if outer is not None:
        return Transpose(source=outer, result=inner)
    blocked = next(
        ((it, b) for it in block.iters for b in [_block_along(load, it)] if it is not inner and b),
        None,
    )
    return None if blocked is None else Transpose(blocked[0], inner, blocked[1])


def _block_along(load: Load, it: Iter) -> int:
    """How many neighbours along a variable lie together, where indices divide it by that."""
    places = [i for i in load.indices if isinstance(i, Binary) and i.op == "floormod"]
    sizes = [int(i.b.value) for i in places if i.a is it.var and isinstance(i.b, Const)]
    access = Access(load.buffer, load.indices)
    return next((b for b in sizes if b > 1 and access.step_within(it.var, b) == 1), 0)


def _runs_along(block: Block, access: Store | Load) -> Iter | None:
    steps = Access(access.buffer, access.indices)
    return next((it for it in block.iters if steps.step(it.var) == 1), None)


def _dtype(block: Block) -> DType:
    return stores_of(block)[0].buffer.dtype


def can_transpose(block: Block, axes: Transpose, target: Target) -> bool:
    """Whether at least one whole tile fits, as far as is known."""
    least = _tiles(block, axes, target)[-1]
    across, along = extent_of(axes.source) or _MANY, extent_of(axes.result) or _MANY
    return least.lanes > 1 and min(across, along, axes.block or across) >= least.lanes


class TransposeTile(NamedTuple):
    """As many rows of the source as fill `vectors` of a row of the result, by `width` elements."""

    dtype: DType
    lanes: int
    vectors: int
    width: int
    #: Whether lanes move within parts of a vector.
    apart: bool = False

    @property
    def height(self) -> int:
        return self.lanes * self.vectors

    @property
    def intrin(self) -> TensorIntrin:
        return transpose_tile(self.dtype, self.lanes, self.vectors, self.width, apart=self.apart)


def plain_tile(dtype: DType, lanes: int, target: Target) -> TransposeTile:
    """A square, or where lanes move within parts of a vector, what half of the registers hold."""
    own = PART_BYTES // dtype.itemsize
    if not target.shuffles_by_parts or lanes <= own:
        return TransposeTile(dtype, lanes, 1, lanes)
    return TransposeTile(
        dtype, lanes, 1, min(lanes, max(own, target.vector_registers // 2)), apart=True
    )


def _tiles(
    block: Block, axes: Transpose, target: Target, *, streams: bool = False
) -> list[TransposeTile]:
    """The tiles that are tried: those of whole lines of the cache, then those of single vectors."""
    dtype = _dtype(block)
    lanes = target.lanes(dtype)
    line = target.caches.line // (dtype.itemsize * lanes)
    if plain_tile(dtype, lanes, target).apart:
        own = PART_BYTES // dtype.itemsize
        whole = [TransposeTile(dtype, lanes, line, own, apart=True)] if streams and line > 1 else []
        return [*whole, *(plain_tile(dtype, side, target) for side in (lanes, own))]
    side = min(lanes, target.vector_registers // 2)
    square = TransposeTile(dtype, side, 1, side)
    if not target.writes_whole_lines or line < 2:
        return [square]
    width = _line_width(block, axes, lanes, target.vector_registers // line, target)
    return [TransposeTile(dtype, lanes, line, width), square] if width else [square]


def _line_width(block: Block, axes: Transpose, lanes: int, most: int, target: Target) -> int:
    """Columns of a tile by lines, `most` of which all registers hold; 0 where none pays."""
    if most >= 2 * lanes and _rows_meet(block, axes, target):
        return most
    is_far = 2 * instances(block) * _dtype(block).itemsize > target.caches.l2
    # Shorter rows than vectors are slower to read.
    pays = most // 2 >= lanes or (most == lanes and is_far)
    return most // 2 if pays else 0


def _rows_meet(block: Block, axes: Transpose, target: Target) -> bool:
    """Whether rows of the source share so few places in the nearest cache that they do not stay
    there from one tile to the next: long pieces of them are better read at once."""
    value = stores_of(block)[0].value
    assert isinstance(value, Load)
    step = Access(value.buffer, value.indices).step(axes.result.var)
    way = target.caches.l1d // target.timing.l1_ways
    return bool(step) and step * value.buffer.dtype.itemsize % way == 0


def _match(s: Schedule, name: str, target: Target) -> Transpose | None:
    block = s.block_of(name)
    axes = as_transpose(block) if has_own_loops(s, name) else None
    return axes if axes is not None and can_transpose(block, axes, target) else None


def _schedule(s: Schedule, name: str, axes: Transpose, target: Target) -> None:
    """Copy by tiles."""
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    across, along = loops.pop(axes.source.var), loops.pop(axes.result.var)
    others = list(loops.values())
    tiles = _tiles(block, axes, target, streams=streams(s.function))
    if axes.block and _extent(s, across) > axes.block:
        # Cut while it is the outermost one, so that each part is a perfect nest.
        s.reorder(across, *others, along)
        across, *rest = _whole_and_rest(s, across, axes.block)
        for part in rest:
            _, *inside, last = s.loops(_block_in(s, part))
            _schedule_part(s, block, tiles, inside, last, part, target)
        blocks, across = s.split(across, None, axes.block)
        others.append(blocks)
    _schedule_part(s, block, tiles, others, along, across, target)


TRANSPOSE = Rule("transpose", _match, as_found, _schedule)


def _schedule_part(
    s: Schedule,
    block: Block,
    tiles: list[TransposeTile],
    others: list[Loop],
    along: Loop,
    across: Loop,
    target: Target,
) -> None:
    """Copy what is in a nest of loops, by tiles if any fits."""
    tiles = [tile for tile in tiles if tile.width <= _extent(s, across)]
    if not tiles:
        # A few neighbours that do not fill a block: element by element, along the result.
        name = _block_in(s, across)
        vectorize_innermost(s, name, target)
        parallelize_outer(s, name, target, instances(block) * _WORK, [across, *others])
        return
    # Each is cut while it is the outer one, so that whole tiles stay a perfect nest.
    s.reorder(*others, along, across)
    parts = [
        _transpose_part(s, part, tile, tiles[-1], target) for tile, part in _cut(s, along, tiles)
    ]
    # What the first kind of tile leaves is little.
    _parallelize(s, block, others, parts[0], target)


def is_thin(block: Block, axes: Transpose, target: Target) -> bool:
    """Whether a row of the result is a few elements, as the channels of a picture, not a vector."""
    row, column = extent_of(axes.result) or 0, extent_of(axes.source) or 0
    is_odd = row & (row - 1) != 0
    return is_odd and row < target.lanes(_dtype(block)) and column >= _thin_lanes(block)


def _thin_lanes(block: Block) -> int:
    """Lanes are stored one by one: what is loaded at a time need not fill a register."""
    return max(4, 8 // _dtype(block).itemsize)


def _match_thin(s: Schedule, name: str, target: Target) -> Transpose | None:
    block = s.block_of(name)
    axes = as_transpose(block) if has_own_loops(s, name) else None
    if axes is None or can_transpose(block, axes, target):
        return None
    return axes if is_thin(block, axes, target) else None


def _schedule_thin(s: Schedule, name: str, axes: Transpose, target: Target) -> None:
    """Vectors along the source, for all elements of a row of the result at once."""
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    across, along = loops.pop(axes.source.var), loops.pop(axes.result.var)
    others = list(loops.values())
    s.reorder(*others, across, along)
    lanes = _thin_lanes(block)
    outer, vector = s.split(whole_tiles(s, across, lanes), None, lanes)
    s.reorder(outer, along, vector)
    s.unroll(along)
    s.vectorize(vector)
    _parallelize(s, block, others, TransposedPart(name, [outer]), target)


THIN_TRANSPOSE = Rule("thin_transpose", _match_thin, as_found, _schedule_thin)


def _parallelize(
    s: Schedule, block: Block, others: list[Loop], part: TransposedPart, target: Target
) -> None:
    """All loops as one where the tiles are all there is; else the outer ones, or those of tiles."""
    work = instances(block) * _WORK
    extents = [s.loop_of(loop).extent for loop in others]
    # A size that is known only when the program runs may well be one.
    count = max(1, prod(int(e.value) for e in extents if isinstance(e, Const)))
    within = [*others, *part.loops]
    if others and not s.can("fuse", others[-1], part.loops[0]):
        outside = count >= 2 * target.cores or work // count < target.timing.fork_operations
        own = [loop for loop in part.loops if _extent(s, loop) > 1]
        within, work = (others, work) if outside or not own else (own, work // count)
    parallelize_outer(s, part.block, target, work, within)


def _cut(s: Schedule, along: Loop, tiles: list[TransposeTile]) -> list[tuple[TransposeTile, Loop]]:
    """Parts of a loop that are covered by whole tiles; what no tile fits is left."""
    if not isinstance(s.loop_of(along).extent, Const):
        return [(tiles[0], s.peel(along, tiles[0].height)[0])]
    extent = _extent(s, along)
    kinds, points, end = list[TransposeTile](), list[int](), 0
    for tile in tiles:
        if extent - end >= tile.height:
            end += (extent - end) // tile.height * tile.height
            kinds.append(tile)
            points.append(end)
    inside = [point for point in points if point < extent]
    parts = s.loop_partition(along, *inside) if inside else [along]
    return list(zip(kinds, parts, strict=False))


class TransposedPart(NamedTuple):
    """A block of tiles, and the outer ones of their loops."""

    block: str
    loops: list[Loop]


def _transpose_part(
    s: Schedule, along: Loop, tile: TransposeTile, least: TransposeTile, target: Target
) -> TransposedPart:
    """All that is in a loop; columns that `tile` is too wide for go by tiles like `least`."""
    across = _inside(s, along)
    s.reorder(across, along)
    across, *rest = _whole_and_rest(s, across, tile.width)
    if rest and least.width < tile.width and least.width <= _extent(s, rest[0]):
        narrow = whole_tiles(s, rest[0], least.width)
        transpose_tiles(s, narrow, _inside(s, narrow), least)
    block, rows, columns = transpose_tiles(s, across, _inside(s, across), tile)
    run = target.timing.sequential_run // (tile.dtype.itemsize * tile.width)
    rows, some_rows = s.split(rows, None, max(1, run))
    # Whole lines of the result are written at once.
    line = max(1, target.caches.line // (tile.dtype.itemsize * tile.height))
    columns, some_columns = s.split(columns, None, line)
    s.reorder(rows, columns, some_rows, some_columns)
    return TransposedPart(block, [rows, columns])


def transpose_tiles(
    s: Schedule, across: Loop, along: Loop, tile: TransposeTile
) -> tuple[str, Loop, Loop]:
    """Transpose by tiles what two loops run over; gives a tile's block and the loops around."""
    rows, row = s.split(across, None, tile.width)
    columns, column = s.split(along, None, tile.height)
    s.reorder(rows, columns, row, column)
    return s.tensorize(row, tile.intrin).name, rows, columns


def whole_tiles(s: Schedule, loop: Loop, size: int) -> Loop:
    """The part of a loop that whole tiles cover; the rest becomes a loop of its own."""
    return _whole_and_rest(s, loop, size)[0]


def _whole_and_rest(s: Schedule, loop: Loop, size: int) -> Sequence[Loop]:
    if not isinstance(s.loop_of(loop).extent, Const):
        return s.peel(loop, size)
    extent = _extent(s, loop)
    whole = extent // size * size
    return [loop] if whole == extent else s.loop_partition(loop, whole)


def _inside(s: Schedule, loop: Loop) -> Loop:
    """The innermost loop of the nest around which `loop` is."""
    return s.loops(_block_in(s, loop))[-1]


def _block_in(s: Schedule, loop: Loop) -> str:
    return next(b.name for b in s.blocks() if loop in s.loops(b))


def _extent(s: Schedule, loop: Loop) -> int:
    """How often a loop runs; often, where that is not known."""
    extent = s.loop_of(loop).extent
    return int(extent.value) if isinstance(extent, Const) else _MANY
