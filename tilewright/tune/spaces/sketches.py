"""Automatic spaces: what can be made of plain loops, by sketches that know no operator.

    inline      what is elementwise goes into what reads it
    reductions  tiles in registers: rows by vectors of columns, with sums outside of them; what
                follows a sum is computed in its tile; operands are copied in the order of tiles
    row sums    partial sums in the lanes of vectors (rfactor)
    the rest    inner loops in vectors
    all         outer loops are shared among threads

Where a primitive refuses a step that only makes things faster, the step is left out; everything
that could be done differently is a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir import Block, Const, Function, Store, free_vars, loads_in, walk
from tilewright.schedule import BlockRef, Choices, Loop, Schedule
from tilewright.support.errors import UserError
from tilewright.target import Target
from tilewright.tune.spaces.knobs import Knobs
from tilewright.tune.spaces.space import Program, Space

#: Rows and vectors of columns of a tile, the most likely first.
_ROWS: Final = (6, 4, 8, 2, 12, 1, 3, 16)
_VECTORS: Final = (2, 1, 3, 4)
#: Vectors of partial sums, and of elements in an iteration.
_PARTIAL: Final = (4, 2, 8, 1)
_ELEMENTS: Final = (1, 2, 4)
#: Iterations of a sum that are unrolled.
_DEPTHS: Final = (1, 2, 4, 8)


def sketch_space(function: Function, target: Target) -> Space:
    """All that sketches make of a function; it is measured beside what the rules make of it."""
    return Space(function, sketches(target), holds_default=False)


def sketches(target: Target) -> Program:
    """The program that makes schedules of any function for a processor."""
    if target.kind.device != "cpu":
        raise UserError(
            f"there are no sketches for {target.kind.name}",
            remedy="search the space of the rules, or write a template",
        )
    return lambda s, choices: _Sketch(s, choices, target).run()


class _Sketch:
    """One schedule on its way."""

    def __init__(self, s: Schedule, choices: Choices, target: Target) -> None:
        self._s, self._choices, self._target = s, choices, target

    def run(self) -> None:
        for block in self._s.blocks():
            self._inline(block)
        done: set[str] = set()
        for block in self._s.blocks():
            if block.name not in done:
                done |= self._schedule(block)

    def _inline(self, block: BlockRef) -> None:
        can = bool(self._s.can("compute_inline", block))
        if can and self._knobs(block).choice("inline", (True, False)):
            self._s.compute_inline(block)

    def _schedule(self, block: BlockRef) -> set[str]:
        """The blocks that are scheduled by now."""
        if not _is_reduction(self._s.block_of(block)):
            self._elementwise(block)
            return {block.name}
        if self._columns(block) is not None:
            return self._tiled(block)
        return self._row_sum(block)

    def _knobs(self, block: BlockRef) -> Knobs:
        return Knobs(self._s, self._choices.within(f"sketch({block.name})"))

    def _lanes(self, block: BlockRef) -> int:
        stores = [x for x in walk(self._s.block_of(block).body) if isinstance(x, Store)]
        return self._target.lanes(stores[0].buffer.dtype) if stores else 1

    # ---- elementwise ----------------------------------------------------------------------------

    def _elementwise(self, block: BlockRef) -> None:
        space, loops = self._knobs(block), list(self._s.loops(block))
        if not loops:
            return
        width = self._lanes(block) * space.choice("vectors", _ELEMENTS)
        if _extent(self._s, loops[-1]) >= width:
            outer, inner = self._s.split(loops[-1], None, width)
            loops[-1:] = [outer]
            self._vectorize(inner)
        self._share(space, loops)

    def _vectorize(self, loop: Loop) -> None:
        if self._s.can("vectorize", loop):
            self._s.vectorize(loop)

    def _share(self, space: Knobs, loops: Sequence[Loop]) -> None:
        """Share outer loops among threads: the outermost, several as one, or none."""
        if self._target.cores == 1 or not loops:
            return
        count = min(3, len(loops))
        taken = space.choice("shared", (*range(count, 0, -1), 0))
        if not taken:
            return
        outer = loops[0]
        if taken > 1 and self._s.can("fuse", *loops[:taken]):
            outer = self._s.fuse(*loops[:taken])
        if self._s.can("parallel", outer):
            self._s.parallel(outer)

    # ---- tiles ----------------------------------------------------------------------------------

    def _columns(self, block: BlockRef) -> int | None:
        """The spatial iterator along which vectors can be loaded and stored: the last index of the
        result, if no operand is read across it."""
        found = self._s.block_of(block)
        store = next(x for x in walk(found.body) if isinstance(x, Store))
        if not store.indices:
            return None
        spatial = [k for k, it in enumerate(found.iters) if it.kind == "spatial"]
        named = [k for k in spatial if found.iters[k].var in free_vars(store.indices[-1])]
        if not named:
            return None
        var = found.iters[named[0]].var
        across = [
            x for x in loads_in(store.value) if any(var in free_vars(i) for i in x.indices[:-1])
        ]
        return None if across else named[0]

    def _tiled(self, block: BlockRef) -> set[str]:
        """A tile of the result in registers, while all of a sum goes by."""
        s, space, column = self._s, self._knobs(block), self._columns(block)
        after = self._epilogue_of(block)
        iters, loops = s.block_of(block).iters, list(s.loops(block))
        if column is None or len(loops) != len(iters):
            return {block.name, after.name}
        panel = self._panel(space, block, column)
        spatial = [k for k, it in enumerate(iters) if it.kind == "spatial"]
        rows = next((k for k in reversed(spatial) if k != column and self._is_long(loops[k])), None)
        lanes = min(self._lanes(block), _extent(s, loops[column]))
        jo, ju, jv = s.split(loops[column], None, space.choice("vectors", _VECTORS), lanes)
        outer, inner = [jo], list[Loop]()
        if rows is not None:
            io, ii = s.split(loops[rows], None, space.choice("rows", _ROWS))
            outer, inner = space.choice("order", ([jo, io], [io, jo])), [ii]
        others = [loops[k] for k in spatial if k not in (column, rows)]
        sums = [loop for k, loop in enumerate(loops) if k not in spatial]
        sums, unrolled = self._unrolled_sums(space, sums)
        s.reorder(*others, *outer, *sums, *unrolled, *inner, ju, jv)
        self._finish_tile(block, after, outer[-1], [*unrolled, *inner, ju], jv)
        if panel is not None:
            self._place_panel(panel, jo, lanes)
        self._share(space, [*others, *outer])
        return {block.name, after.name, *([panel.name] if panel else [])}

    def _panel(self, space: Knobs, block: BlockRef, column: int) -> BlockRef | None:
        """A copy of the operand that is read along columns, if it is chosen to be made."""
        found = self._s.block_of(block)
        var = found.iters[column].var
        store = next(x for x in walk(found.body) if isinstance(x, Store))
        along = [x for x in loads_in(store.value) if var in free_vars(x.indices[-1])]
        operands = dict.fromkeys(x.buffer for x in along if x.buffer is not store.buffer)
        if len(operands) != 1 or not space.choice("panel", (False, True)):
            return None
        (operand,) = operands
        return self._s.cache_read(block, operand.name, "global")

    def _place_panel(self, panel: BlockRef, column: Loop, lanes: int) -> None:
        """Copy the columns of an operand that tiles below each other share, side by side."""
        s = self._s
        own = s.compute_at(panel, column)
        if own and _extent(s, own[-1]) >= lanes:
            self._vectorize(s.split(own[-1], None, lanes)[1])

    def _is_long(self, loop: Loop) -> bool:
        return _extent(self._s, loop) > 1

    def _unrolled_sums(self, space: Knobs, sums: list[Loop]) -> tuple[list[Loop], list[Loop]]:
        """The loops of a sum, and the part of the innermost that is unrolled."""
        depth = space.choice("depth", _DEPTHS)
        if depth == 1 or not sums:
            return sums, []
        outer, inner = self._s.split(sums[-1], None, depth)
        return [*sums[:-1], outer], [inner]

    def _epilogue_of(self, block: BlockRef) -> BlockRef:
        """The block that takes a tile on: the one that reads it, or a copy out of registers."""
        s = self._s
        readers = s.consumers(block)
        buffer = next(x for x in walk(s.block_of(block).body) if isinstance(x, Store)).buffer
        is_inner = buffer not in s.function.params
        if is_inner and len(readers) == 1 and not _is_reduction(s.block_of(readers[0])):
            return readers[0]
        return s.cache_write(block, 0, "local")

    def _finish_tile(
        self,
        block: BlockRef,
        after: BlockRef,
        tile: Loop,
        unrolled: Sequence[Loop],
        vector: Loop,
    ) -> None:
        """Compute what follows where a tile is done; loops in the tile become straight code."""
        s = self._s
        if s.can("reverse_compute_at", after, tile):
            own = s.reverse_compute_at(after, tile)
            if own and _extent(s, own[-1]) >= self._lanes(block):
                self._vectorize(s.split(own[-1], None, self._lanes(block))[1])
        if s.can("set_scope", block, 0, "local"):
            s.set_scope(block, 0, "local")
        for loop in unrolled:
            s.unroll(loop)
        self._vectorize(vector)

    # ---- row sums -------------------------------------------------------------------------------

    def _row_sum(self, block: BlockRef) -> set[str]:
        """Sums along what lies side by side: partial ones in the lanes of vectors."""
        s, space = self._s, self._knobs(block)
        loops = list(s.loops(block))
        is_sum = [it.kind == "reduce" for it in s.block_of(block).iters]
        if len(loops) != len(is_sum) or not is_sum or not is_sum[-1]:
            self._share(space, [x for x, r in zip(loops, is_sum, strict=False) if not r])
            return {block.name}
        width = self._lanes(block) * space.choice("partial", _PARTIAL)
        names = {block.name}
        if _extent(s, loops[-1]) >= 2 * width and space.choice("by_lanes", (True, False)):
            _, inner = s.split(loops[-1], None, width)
            if s.can("rfactor", inner):
                partial = s.rfactor(inner)
                names.add(partial.name)
                self._partial(block, partial, len(loops) - 1)
        outer = s.loops(block)[: sum(not r for r in is_sum)]
        self._share(space, outer)
        return names

    def _partial(self, block: BlockRef, partial: BlockRef, depth: int) -> None:
        """The partial sums of a row, just before they are added up."""
        s = self._s
        if depth and s.can("compute_at", partial, s.loops(block)[depth - 1]):
            s.compute_at(partial, s.loops(block)[depth - 1])
        found = s.block_of(partial)
        loops = list(s.loops(partial))[-len(found.iters) :]
        kinds = [it.kind for it in found.iters][-len(loops) :]
        lanes = [x for x, kind in zip(loops, kinds, strict=True) if kind == "spatial"][-1:]
        sums = [x for x, kind in zip(loops, kinds, strict=True) if kind == "reduce"]
        if lanes and sums and s.can("reorder", *sums, *lanes):
            s.reorder(*sums, *lanes)
            self._vectorize(lanes[0])


def _is_reduction(block: Block) -> bool:
    return any(it.kind == "reduce" for it in block.iters)


def _extent(s: Schedule, loop: Loop) -> int:
    extent = s.loop_of(loop).extent
    return int(extent.value) if isinstance(extent, Const) else 1 << 30
