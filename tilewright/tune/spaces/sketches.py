"""Automatic search spaces: sketches of schedules for plain loops, independent of operators.

    inline      elementwise blocks are inlined into their consumers
    rows        functions with reductions along rows are computed row by row, with partial sums in
                the lanes of vectors (rfactor)
    reductions  tiles in registers: rows by vectors of columns, and tiles of a third dimension if
                that saves loads, with the reduction loops outside; the epilogue of a reduction is
                computed in its tile; operands are packed in the order of tiles
    the rest    inner loops are vectorized
    all         outer loops are parallelized

Where a primitive refuses a step that is only an optimization, the step is left out; everything that
could be done in another way is a choice.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import Function
from tilewright.schedule import BlockRef, Choices, Schedule
from tilewright.support.errors import UserError
from tilewright.target import Target
from tilewright.tune.spaces.sketch import Sketch
from tilewright.tune.spaces.sketched_rows import row_by_row, sum_rows
from tilewright.tune.spaces.sketched_tiles import column_of, tile
from tilewright.tune.spaces.space import Program, Space

#: Vectors of elements per iteration.
_ELEMENTS: Final = (1, 2, 4)


def sketch_space(function: Function, target: Target) -> Space:
    """All schedules that sketches make of a function, measured against the rules' default."""
    return Space(function, sketches(target), holds_default=False)


def sketches(target: Target) -> Program:
    """The program that schedules any function for a CPU."""
    if target.kind.device != "cpu":
        raise UserError(
            f"there are no sketches for {target.kind.name}",
            remedy="search the space of the rules, or write a template",
        )
    return lambda s, choices: _run(s, choices, target)


def _run(s: Schedule, choices: Choices, target: Target) -> None:
    sketch = Sketch(s, choices, target)
    for block in s.blocks():
        _inline(sketch, block)
    if row_by_row(sketch):
        return
    done: set[str] = set()
    for block in s.blocks():
        if block.name not in done:
            done |= _schedule(sketch, block)


def _inline(sketch: Sketch, block: BlockRef) -> None:
    """Inline a block into its consumers; by default if there is just one."""
    if not sketch.s.can("compute_inline", block):
        return
    once = len(sketch.s.consumers(block)) == 1
    if sketch.knobs(block).choice("inline", (once, not once)):
        sketch.s.compute_inline(block)


def _schedule(sketch: Sketch, block: BlockRef) -> set[str]:
    """Schedule a block; gives the scheduled blocks."""
    if not sketch.is_sum(block):
        _elementwise(sketch, block)
        return {block.name}
    if column_of(sketch, block) is not None:
        return tile(sketch, block)
    return sum_rows(sketch, block)


def _elementwise(sketch: Sketch, block: BlockRef) -> None:
    space, loops = sketch.knobs(block), list(sketch.s.loops(block))
    if not loops:
        return
    outer = sketch.in_vectors(loops[-1], sketch.lanes(block) * space.choice("vectors", _ELEMENTS))
    loops[-1:] = [outer or loops[-1]]
    sketch.share(space, loops)
