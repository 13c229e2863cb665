"""Packing the operands of a product for instructions that take groups along the reduction.

With `width` rows (or columns) and `deep` groups of `group` elements in a tile, S[i, k] goes to

    D[i // width, k // (deep * group), k % (deep * group) // group * width * group
                                       + i % width * group + k % group]

and with deep = 1 that is D[i // width, k // group, i % width * group + k % group]. Where steps come
in runs, the runs of a tile are stored one after the other: a tile is read in order.

Instructions that broadcast one group of a row to all lanes can load it from anywhere: such rows are
copied whole (`Rows`), one after the other. The block that packs is a new copy, or the one that pads
the operand with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Cast, Const, DType, Expr, Load, Var, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import interleave
from tilewright.schedule.rules.analysis import Access, is_injective, stores_of
from tilewright.schedule.rules.elementwise import vectorize_innermost
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Copies of groups of at most `_SHORT` elements are unrolled `_AT_ONCE` times.
_SHORT, _AT_ONCE = 4, 8


@dataclass(frozen=True)
class Layout:
    """The shape of a tile."""

    width: int
    group: int
    deep: int = 1

    def place(self, i: Expr, k: Expr) -> tuple[Expr, Expr, Expr]:
        """Where the element of row (or column) `i` and step `k` goes."""
        own = i % self.width * self.group + k % self.group
        if self.deep == 1:
            return i // self.width, k // self.group, own
        depth = self.deep * self.group
        row = k % depth // self.group
        return i // self.width, k // depth, row * (self.width * self.group) + own


@dataclass(frozen=True)
class Rows:
    """Tiles of whole rows."""

    width: int

    def place(self, i: Expr, k: Expr) -> tuple[Expr, Expr, Expr]:
        """Where the element of row `i` and step `k` goes."""
        return i // self.width, i % self.width, k


@dataclass(frozen=True)
class Packed:
    """The block that packs an operand, and its dimensions across and along the tile."""

    block: str
    across: int
    along: int
    layout: Layout | Rows


def pack_operand(
    s: Schedule,
    user: str,
    access: Access,
    across: Var,
    along: Var,
    layout: Layout | Rows,
    runs: Sequence[Var] = (),
) -> Packed:
    """Let the block `user` read a packed operand, whose tiles run across rows (or columns) and
    along the reduction, of which `runs` are the outer variables."""
    return lay_out_operand(s, _copy_of(s, user, access), access, across, along, layout, runs)


def lay_out_operand(
    s: Schedule,
    copy: str,
    access: Access,
    across: Var,
    along: Var,
    layout: Layout | Rows,
    runs: Sequence[Var] = (),
) -> Packed:
    """As `pack_operand`, for an operand that the block `copy` makes."""
    names = [i.name if isinstance(i, Var) else "" for i in access.indices]
    outer, inner = names.index(across.name), names.index(along.name)
    # A run of length 1 may have no index of its own.
    within = [names.index(run.name) for run in runs if run.name in names]

    def blocked(*at: Expr) -> tuple[Expr, ...]:
        rest = [i for n, i in enumerate(at) if n not in (outer, inner, *within)]
        tile, *inside = layout.place(at[outer], at[inner])
        return (*rest, tile, *(at[n] for n in within), *inside)

    s.transform_layout(copy, 0, blocked)
    return Packed(copy, outer, inner, layout)


def _copy_of(s: Schedule, user: str, access: Access) -> str:
    """The block that makes the packed operand: the one that pads it, or a new copy."""
    pads = [made for made in s.producers(user) if made.name.endswith("_pad")]
    own = [made for made in pads if s.block_of(made).writes[0].buffer is access.buffer]
    copy = own[0] if own else s.cache_read(user, access.buffer)
    _inline_before(s, copy.name)
    return copy.name


def _inline_before(s: Schedule, copy: str) -> None:
    """Inline elementwise producers of the operand into the packing."""
    for made in s.producers(copy):
        if is_injective(s.block_of(made)) and s.can("compute_inline", made):
            s.compute_inline(made)
            return _inline_before(s, copy)
    return None


def schedule_packing(s: Schedule, packed: Packed, target: Target) -> Loop | None:
    """Pack whole groups at a time. Gives the outermost of the new loops."""
    across, along = (loop_along(s, packed, k) for k in (packed.across, packed.along))
    if across is None or along is None or across is along:
        return None
    layout, dtype = packed.layout, s.block_of(packed.block).writes[0].buffer.dtype
    if isinstance(layout, Rows):
        return _copy_rows(s, packed, across, along, target)
    lanes = _lanes(layout.width, target.lanes(dtype))
    tile, vectors, lane = s.split(across, None, layout.width // lanes, lanes)
    steps, deep, group = s.split(along, None, layout.deep, layout.group)
    between = loops_between(s, packed.block, tile, (vectors, lane, steps, deep, group))
    if lanes > 1 and _is_copy_of_rows(s, packed):
        source = s.block_of(packed.block).reads[0].buffer.dtype
        tile, beside = s.split(tile, None, _tiles_at_once(s, tile, layout.width, source, target))
        s.unroll(beside)
        s.reorder(tile, *between, steps, deep, beside, vectors, lane, group)
        s.tensorize(lane, interleave(source, lanes, layout.group, dtype))
        return tile
    # Rows outside, steps inside: the address of a row is computed once.
    s.reorder(tile, *between, vectors, lane, steps, deep, group)
    s.vectorize(group)
    if layout.group <= _SHORT:
        s.unroll(s.split(steps, None, _AT_ONCE)[1])
    return tile


def _tiles_at_once(s: Schedule, tile: Loop, width: int, source: DType, target: Target) -> int:
    """How many tiles share cache lines of the source; 1 if cores would then be idle."""
    extent = s.loop_of(tile).extent
    tiles = int(extent.value) if isinstance(extent, Const) else 1
    beside = max(1, target.caches.line // (width * source.itemsize))
    return beside if tiles % beside == 0 and tiles >= beside * target.cores else 1


def _copy_rows(
    s: Schedule, packed: Packed, across: Loop, along: Loop, target: Target
) -> Loop | None:
    """Copy whole rows, one after the other, vectorized along each."""
    between = loops_between(s, packed.block, across, (along,))
    # Split by the stored tiles, so that the region of a chunk follows from the loops.
    across, row = s.split(across, None, packed.layout.width)
    s.reorder(across, row, *between, along)
    avoid_conflicts(s, packed.block, target)
    vectorize_innermost(s, packed.block, target)
    return across


def avoid_conflicts(s: Schedule, copy: str, target: Target) -> None:
    """Pad the rows that `copy` writes, so that neighbours map to different sets of L1."""
    if target.is_bare:
        # There memory is scarce, and as fast as a cache.
        return
    buffer = s.block_of(copy).writes[0].buffer
    line = target.caches.line // buffer.dtype.itemsize
    row = buffer.shape[-1]
    if isinstance(row, Const) and row.value < line:
        # Several rows share a line.
        return
    # Make the stride between rows an odd number of lines.
    s.storage_align(copy, buffer.name, -2, 2 * line, line)


def loop_along(s: Schedule, packed: Packed, dimension: int) -> Loop | None:
    """The loop over a dimension of the packed operand, if there is one."""
    used = free_vars(s.block_of(packed.block).bindings[dimension])
    loops = [loop for loop in s.loops(packed.block) if loop.var in used]
    return loops[-1] if loops else None


def loops_between(s: Schedule, name: str, outer: Loop, inner: Sequence[Loop]) -> list[Loop]:
    """The other loops, from the outermost of `outer` and `inner` on."""
    loops = s.loops(name)
    first = min(loops.index(loop) for loop in (outer, *inner))
    return [loop for loop in loops[first:] if loop not in (outer, *inner)]


def _lanes(width: int, most: int) -> int:
    """The widest vector that divides the width."""
    while width % most:
        most //= 2
    return most


def _is_copy_of_rows(s: Schedule, packed: Packed) -> bool:
    """Whether the block only copies or converts a source that is contiguous across."""
    block = s.block_of(packed.block)
    (store,) = stores_of(block)
    value = store.value.a if isinstance(store.value, Cast) else store.value
    if not isinstance(value, Load):
        return False
    return Access(value.buffer, value.indices).step(block.iters[packed.across].var) == 1
