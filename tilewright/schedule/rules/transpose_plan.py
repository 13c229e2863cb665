"""How a transpose is cut into tiles: its two contiguous variables, and the kinds of tiles."""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.ir import Binary, Block, Const, DType, Iter, Load, Store
from tilewright.schedule.intrinsics import PART_BYTES, transpose_tile
from tilewright.schedule.rules.analysis import (
    Access,
    extent_of,
    is_injective,
    loops_within,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances
from tilewright.schedule.rules.rule import Choices
from tilewright.schedule.rules.stream import streams
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tensor_intrin import TensorIntrin
from tilewright.target import Target

#: The value assumed for an extent that is known only at run time.
MANY: Final = 1024


class Transpose(NamedTuple):
    """The variables that are contiguous in the source, and in the result."""

    source: Iter
    result: Iter
    #: How many elements are contiguous in the source, as in blocked channels; 0 for all.
    block: int = 0


class TransposeTile(NamedTuple):
    """`height` rows of the source (`vectors` vectors of a row of the result), by `width`."""

    dtype: DType
    lanes: int
    vectors: int
    width: int
    #: Whether lanes only move within parts of 16 bytes.
    by_parts: bool = False

    @property
    def height(self) -> int:
        return self.lanes * self.vectors

    @property
    def intrin(self) -> TensorIntrin:
        return transpose_tile(
            self.dtype, self.lanes, self.vectors, self.width, by_parts=self.by_parts
        )


class TransposedCopy(NamedTuple):
    """A block that transposes, and whether its result bypasses the caches."""

    axes: Transpose
    block: Block
    streams: bool


class TransposePlan(NamedTuple):
    """The tiles of a transpose, and the bytes of a row of the source that are read in sequence."""

    copy: TransposedCopy
    #: Each kind covers what the ones before left over.
    tiles: list[TransposeTile]
    run: int


class ThinPlan(NamedTuple):
    """A transpose to short rows, and how many elements of the source are loaded at a time."""

    copy: TransposedCopy
    lanes: int


def as_transpose(block: Block) -> Transpose | None:
    """The block as a copy whose source and result are contiguous along different variables."""
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
    """How many elements along a variable are contiguous, as indices divide it by that number."""
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
    """Whether at least one whole tile fits, as far as extents are known."""
    least = _tiles(block, axes, target)[-1]
    across, along = extent_of(axes.source) or MANY, extent_of(axes.result) or MANY
    return least.lanes > 1 and min(across, along, axes.block or across) >= least.lanes


def plain_tile(dtype: DType, lanes: int, target: Target) -> TransposeTile:
    """A square; where lanes only move within parts of a vector, at most half of the registers."""
    own = PART_BYTES // dtype.itemsize
    if not target.shuffles_by_parts or lanes <= own:
        return TransposeTile(dtype, lanes, 1, lanes)
    return TransposeTile(
        dtype, lanes, 1, min(lanes, max(own, target.vector_registers // 2)), by_parts=True
    )


def _tiles(
    block: Block, axes: Transpose, target: Target, *, streams: bool = False
) -> list[TransposeTile]:
    """The kinds of tiles to try: whole cache lines of the result first, then single vectors."""
    dtype = _dtype(block)
    lanes = target.lanes(dtype)
    line = target.caches.line // (dtype.itemsize * lanes)
    if plain_tile(dtype, lanes, target).by_parts:
        own = PART_BYTES // dtype.itemsize
        lines = [TransposeTile(dtype, lanes, line, own, by_parts=True)]
        whole = lines if streams and line > 1 else []
        return [*whole, *(plain_tile(dtype, side, target) for side in (lanes, own))]
    side = min(lanes, target.vector_registers // 2)
    square = TransposeTile(dtype, side, 1, side)
    if not target.writes_whole_lines or line < 2:
        return [square]
    width = _line_width(block, axes, lanes, target.vector_registers // line, target)
    return [TransposeTile(dtype, lanes, line, width), square] if width else [square]


def _line_width(block: Block, axes: Transpose, lanes: int, most: int, target: Target) -> int:
    """Columns of a tile of whole cache lines, `most` of which fill all registers; 0 where such
    tiles do not pay."""
    if most >= 2 * lanes and _rows_share_sets(block, axes, target):
        return most
    is_far = 2 * instances(block) * _dtype(block).itemsize > target.caches.l2
    # Rows shorter than a vector are slower to read.
    pays = most // 2 >= lanes or (most == lanes and is_far)
    return most // 2 if pays else 0


def _rows_share_sets(block: Block, axes: Transpose, target: Target) -> bool:
    """Whether rows of the source map to so few sets of L1 that they are evicted before the next
    tile: then it is better to read long pieces of them at once."""
    value = stores_of(block)[0].value
    assert isinstance(value, Load)
    step = Access(value.buffer, value.indices).step(axes.result.var)
    way = target.caches.l1d // target.timing.l1_ways
    return bool(step) and step * value.buffer.dtype.itemsize % way == 0


def _transposed(s: Schedule, name: str) -> TransposedCopy | None:
    block, loops = s.block_of(name), loops_within(s, name, None)
    are_own = len({*loops.values()}) == len(loops) == len(s.loops(name))
    are_all = all(it.var in loops or extent_of(it) == 1 for it in block.iters)
    axes = as_transpose(block) if are_own and are_all else None
    return None if axes is None else TransposedCopy(axes, block, streams(s.function))


def find_transpose(s: Schedule, name: str, target: Target) -> TransposedCopy | None:
    copy = _transposed(s, name)
    return copy if copy is not None and can_transpose(copy.block, copy.axes, target) else None


def plan_transpose(copy: TransposedCopy, target: Target, choices: Choices) -> TransposePlan:
    tiles = _tiles(copy.block, copy.axes, target, streams=copy.streams)
    tiles = choices.choose("tiles", [tiles[k:] for k in range(len(tiles))])
    run = target.timing.sequential_run
    return TransposePlan(copy, tiles, choices.choose("run", (run, run // 4, run * 4)))


def is_thin(block: Block, axes: Transpose, target: Target) -> bool:
    """Whether rows of the result are shorter than a vector, like the channels of a picture."""
    row, column = extent_of(axes.result) or 0, extent_of(axes.source) or 0
    is_odd = row & (row - 1) != 0
    return is_odd and row < target.lanes(_dtype(block)) and column >= _thin_lanes(block)


def _thin_lanes(block: Block) -> int:
    """Elements loaded at a time. Lanes are stored one by one, so they need not fill a register."""
    return max(4, 8 // _dtype(block).itemsize)


def find_thin_transpose(s: Schedule, name: str, target: Target) -> TransposedCopy | None:
    copy = _transposed(s, name)
    if copy is None or can_transpose(copy.block, copy.axes, target):
        return None
    return copy if is_thin(copy.block, copy.axes, target) else None


def plan_thin_transpose(copy: TransposedCopy, _target: Target, choices: Choices) -> ThinPlan:
    own, column = _thin_lanes(copy.block), extent_of(copy.axes.source) or 0
    lanes = (own, *(n for n in (2 * own, 4 * own) if n <= column))
    return ThinPlan(copy, choices.choose("lanes", lanes))
