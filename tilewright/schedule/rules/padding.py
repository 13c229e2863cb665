"""Padding before a window slides over an image: strip by strip, just before use, in the cache.

for y: X_pad[y] = …                   for strip of rows (parallel):
for y: for window: Y[y] += …    -->       X_pad[rows of the strip] = …
                                          for y in strip: for window: Y[y] += …
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.arith import linear
from tilewright.ir import (
    Block,
    Const,
    Expr,
    Iter,
    Load,
    Select,
    Var,
    all_exprs,
    free_vars,
)
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    extent_of,
    is_conditional,
    is_injective,
    is_intermediate,
    stores_of,
)
from tilewright.schedule.rules.elementwise import has_thin_pixels, vectorize_innermost
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Rows shared by two strips are padded twice: a strip has at least this many times more of its own.
_OWN_ROWS = 4


def padding_before(s: Schedule, name: str) -> list[str]:
    """The blocks that pad (select between image and border) for the block `name` alone."""
    found: list[str] = []
    for ref in s.producers(name):
        block = s.block_of(ref)
        private = [c.name for c in s.consumers(ref)] == [name]
        chooses = is_injective(block) and is_conditional(block) and len(block.writes) == 1
        if private and chooses and is_intermediate(s, block.writes[0].buffer):
            found.append(ref.name)
    return found


def inline_padding(s: Schedule, name: str, column: Iter) -> list[str]:
    """Read images in place, with a bounds check in the few tiles that touch an edge.

    Gives the blocks that still pad: those that compute more than that, and those whose check would
    differ between lanes along `column`.
    """
    kept: list[str] = []
    for pad in padding_before(s, name):
        if _is_plain(s.block_of(pad)) and not _checks_lanes(s, name, pad, column):
            s.compute_inline(pad)
        else:
            kept.append(pad)
    return kept


def _checks_lanes(s: Schedule, name: str, pad: str, column: Iter) -> bool:
    """Whether inlining `pad` would need a separate check for each lane along `column`."""
    trial = s.copy()
    trial.compute_inline(pad)
    choices = (e for e in all_exprs(trial.block_of(name).body) if isinstance(e, Select))
    return any(column.var in free_vars(e.condition) for e in choices)


def _is_plain(block: Block) -> bool:
    """Whether a block selects between an element and a constant, and does nothing else."""
    values = [store.value for store in stores_of(block)]
    return all(
        isinstance(v, Select) and isinstance(v.a, Load) and isinstance(v.b, Const) for v in values
    )


def shared_strip_of(
    s: Schedule, name: str, image: Access, others: Sequence[Iter], size: int, target: Target
) -> int | None:
    """How many steps of the last of `others`, the loops around the tiles of `name`, make a strip of
    the image of at most `size` bytes; None where the whole image is padded first."""
    *around, row = others
    moves = any(row.var in free_vars(i) for i in image.indices)
    rows = strip_of(s, name, image, row, size, target) if moves else None
    if rows is None:
        return None
    # With few channels there are more strips, so that every core has work.
    channels = prod(extent_of(it) or target.cores for it in around)
    strips = max(-(-(extent_of(row) or 1) // rows), -(-2 * target.cores // channels))
    return max(1, -(-(extent_of(row) or 1) // strips))


def strip_of(
    s: Schedule, name: str, image: Access, row: Iter, size: int, target: Target
) -> int | None:
    """How many steps of `row` make a strip of the image that fits, while every core has strips.

    All steps where the whole image fits; None where sizes are unknown.
    """
    block, extent = s.block_of(name), extent_of(row)
    if extent is None:
        return None
    step, reach = _motion(image, block, row.var)
    fit = size // max(1, _row_bytes(image, block, row.var))
    if fit >= (extent - 1) * step + reach:
        return extent
    steps = max(1, (fit - reach) // step + 1, _OWN_ROWS * (reach - step) // step)
    strips = -(-extent // min(extent, steps))
    strips = -(-strips // target.cores) * target.cores
    return -(-extent // strips)


def _row_bytes(load: Access, block: Block, row: Var) -> int:
    """Bytes of one row of the image, over the dimensions inside it."""
    sizes = [
        int(d.value)
        for d, i in zip(load.buffer.shape, load.indices, strict=True)
        if isinstance(d, Const) and row not in free_vars(i) and not _is_outer(i, block, row)
    ]
    return prod(sizes) * load.buffer.dtype.itemsize


def _is_outer(index: Expr, block: Block, row: Var) -> bool:
    """Whether an index consists of variables of loops around the one over rows."""
    order = [it.var for it in block.iters]
    used = free_vars(index) & set(order)
    reduced = {it.var for it in block.iters if it.kind == "reduce"}
    return all(v not in reduced and order.index(v) < order.index(row) for v in used)


def _motion(load: Access, block: Block, row: Var) -> tuple[int, int]:
    """By how many rows a step of `row` moves the window, and how many rows it spans."""
    index = next((i for i in load.indices if row in free_vars(i)), None)
    if index is None:
        return 1, 1
    terms = linear(index).terms
    spans = [
        abs(terms.get(it.var, 0)) * ((extent_of(it) or 1) - 1)
        for it in block.iters
        if it.kind == "reduce"
    ]
    return max(1, abs(terms.get(row, 1))), sum(spans) + 1


def place_padding(s: Schedule, pads: list[str], loop: Loop, target: Target) -> None:
    """Pad in `loop` what its body needs, vectorized."""
    for name in pads:
        if not s.can("compute_at", name, loop):
            continue
        s.compute_at(name, loop)
        if not has_thin_pixels(s, name, target):
            vectorize_innermost(s, name, target)


def join_pixels(s: Schedule, pads: list[str], target: Target) -> None:
    """Pad pixels too small for a vector as one run of elements.

    This must come last: once loops are fused, the region that a strip needs is no longer known.
    """
    for name in pads:
        if has_thin_pixels(s, name, target):
            s.fuse(*s.loops(name)[-2:])
            vectorize_innermost(s, name, target)
