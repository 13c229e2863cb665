"""Depthwise convolution of bytes (a window per channel), by dot products lane by lane.

    for strip of rows (parallel):
        pad the rows of the strip
        for row of results:
            interleave the rows of the window, so that those of one channel are contiguous
            for tile of pixels: for vector of channels:
                sums over the columns of the window, four rows of it by one instruction
                output = epilogue(sums)

Without the instruction, a window of 3×3 takes nine products, each of which widens bytes; with it,
three, and the interleaved rows serve all windows along the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.arith import linear
from tilewright.ir import Iter, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import Dot, interleave, lane_dot_for
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
    has_own_loops,
    operations,
)
from tilewright.schedule.rules.elementwise import (
    instances,
    parallelize_outer,
    seams_along,
    vectorize_innermost,
)
from tilewright.schedule.rules.epilogue import place_epilogue
from tilewright.schedule.rules.padding import padding_before, shared_strip_of
from tilewright.schedule.rules.products.packing import (
    Layout,
    Packed,
    lay_out_operand,
    loop_along,
    loops_between,
    pack_operand,
    schedule_packing,
)
from tilewright.schedule.rules.products.product import start_with_vectors
from tilewright.schedule.rules.reductions.columns import look_up_rows
from tilewright.schedule.rules.rule import MOST, Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Bytes (channels) that are interleaved at a time.
_LANES: Final = 16
#: An image has at least two variables of rows: height and width.
_IMAGE: Final = 2
#: The fewest windows per element of the image that pay for padding and interleaving it.
_READS: Final = 4
#: The fixed cost of a tile, in pixels.
_BESIDE: Final = 2


@dataclass(frozen=True)
class Windows:
    """C[…, y, x, c] += A[…, y + r, x + q, c] * B[r, q, c] for constant B."""

    schedule: Schedule
    name: str
    dot: Dot
    contraction: Contraction
    #: The channels, which are neighbours in memory.
    column: Iter
    #: The last of the other dimensions of the output.
    pixel: Iter
    #: The variable of the window whose steps are interleaved, and its dimension of the image.
    grouped: Iter
    dimension: int
    work: int

    @property
    def others(self) -> list[Iter]:
        """The output dimensions that no tile is cut from."""
        tiled = self.column.var, self.pixel.var
        iters = self.schedule.block_of(self.name).iters
        return [it for it in iters if it.kind == "spatial" and it.var not in tiled]


@dataclass(frozen=True)
class WindowsPlan:
    """How windows are cut: pixels that are summed together, rows that are padded together."""

    windows: Windows
    pixels: int
    strip: int | None


def _match(s: Schedule, name: str, target: Target) -> Windows | None:
    block = s.block_of(name)
    c = as_contraction(block) if has_own_loops(s, name) else None
    if c is None or c.columns or len(c.rows) < _IMAGE or not c.batch:
        return None
    dot = lane_dot_for(target, c.a.buffer.dtype, c.b.buffer.dtype, c.out.buffer.dtype)
    window = [it for it in c.reduced if (extent_of(it) or 0) > 1]
    if dot is None or not window or c.b.buffer not in constants_of(s.function):
        return None
    column, pixel, grouped = c.batch[-1], c.rows[-1], window[0]
    are_known = all(extent_of(it) for it in (column, pixel, *c.reduced))
    neighbours = all(a.step(column.var) == 1 for a in (c.out, c.a, c.b))
    if not are_known or not neighbours or (extent_of(column) or 1) % _LANES:
        return None
    if _reads(c) < _READS:
        return None
    walked = [k for k, i in enumerate(c.a.indices) if grouped.var in free_vars(i)]
    are_plain = all(v in c.b.indices for v in (column.var, grouped.var))
    # The grouped variable must index adjacent rows of the image, not pixels of one row.
    terms = linear(c.a.indices[walked[0]]).terms
    if not are_plain or len(walked) != 1 or terms.get(grouped.var) != 1 or pixel.var in terms:
        return None
    work = instances(block) * operations(block)
    return Windows(s, name, dot, c, column, pixel, grouped, walked[0], work)


def _reads(c: Contraction) -> float:
    """How many windows read an element of the image, on average."""
    terms = [linear(i).terms for i in c.a.indices]
    steps = [abs(own[it.var]) for own in terms for it in c.rows if it.var in own]
    return prod(extent_of(it) or 1 for it in c.reduced) / prod(steps)


# ---- decisions ----------------------------------------------------------------------------------


def _plan(found: Windows, target: Target, choices: Choices) -> WindowsPlan:
    pixels = choices.choose("pixels", _tiles(found, target))
    strip = None
    if padding_before(found.schedule, found.name):
        image, half = found.contraction.a, target.caches.l1d // 2
        strip = shared_strip_of(found.schedule, found.name, image, found.others, half, target)
    return WindowsPlan(found, pixels, None if strip is None else _even_strip(found, strip))


def _even_strip(found: Windows, rows: int) -> int:
    """About `rows` rows, a divisor of the image's: partial strips would put conditions on rows, and
    then it could not be proved that one row of results needs few interleaved rows."""
    extent = extent_of(found.others[-1]) or rows
    strips = [n for n in range(1, extent + 1) if extent % n == 0]
    return max((n for n in strips if rows // 2 < n <= rows), default=extent)


def _tiles(found: Windows, target: Target) -> list[int]:
    """Candidate numbers of pixels in a tile, the fastest first: registers hold their sums, a vector
    of weights, and the operands along the row."""
    extent = extent_of(found.pixel) or 1
    step, reach = 1, 1
    for index in found.contraction.a.indices:
        terms = linear(index).terms
        if found.pixel.var in terms:
            step = abs(terms[found.pixel.var])
            spans = ((it, terms.get(it.var, 0)) for it in found.contraction.reduced)
            reach = 1 + sum(((extent_of(it) or 1) - 1) * abs(by) for it, by in spans)
    most = (target.vector_registers - 1 - max(0, reach - step)) // (1 + step)

    def slowness(pixels: int) -> int:
        return -(-extent // pixels) * (pixels + _BESIDE)

    return sorted(range(max(1, min(most, extent)), 0, -1), key=slowness)[:MOST]


# ---- applying a plan ----------------------------------------------------------------------------


def _schedule(s: Schedule, name: str, plan: WindowsPlan, target: Target) -> None:
    found = plan.windows
    depth, rows = found.dot.depth, extent_of(found.grouped) or 1
    pads = padding_before(s, name)
    # The sums of one vector of channels leave the registers before the next vector's are computed.
    sums = s.cache_write(name, 0, "local").name
    epilogue = [b.name for b in s.consumers(sums)]
    copy = s.reindex(name, found.contraction.a.buffer.name, [found.dimension]).name
    if rows % depth:
        iters = s.block_of(name).iters
        s.pad(name, [depth if it.var is found.grouped.var else 1 for it in iters])
        s.compute_inline(copy)
    c = as_contraction(s.block_of(name))
    assert c is not None
    layout = Layout(_LANES, depth, -(-rows // depth))
    across, along = found.column.var, found.grouped.var
    copy = lay_out_operand(s, _maker(s, name, c.a), c.a, across, along, layout)
    packed = pack_operand(s, name, c.b, across, along, layout)
    iters = s.block_of(name).iters
    loops = {it.var: loop for it, loop in zip(iters, s.loops(name), strict=True)}
    its = (found.column, found.pixel, found.grouped)
    column, pixel, grouped = (loops.pop(it.var) for it in its)
    window = [loops.pop(it.var) for it in c.reduced if it.var in loops]
    shared, within = [*loops.values()], list[Loop]()
    if plan.strip is not None:
        *shared, row = shared
        strip, row = s.split(row, None, plan.strip)
        shared, within = [*shared, strip], [row]
    vectors, j = s.split(column, None, found.dot.columns)
    groups, k = s.split(grouped, None, depth)
    tiles, pixels = s.split(pixel, None, plan.pixels)
    s.reorder(*shared, *within, tiles, vectors, groups, *window, pixels, j, k)
    start_with_vectors(s, name, s.decompose_reduction(name, groups).name, found.dot)
    for loop in (groups, *window, pixels):
        s.unroll(loop)
    lanes = target.lanes(c.out.buffer.dtype)
    place_epilogue(s, [sums], vectors, lanes, target)
    place_epilogue(s, epilogue, tiles, lanes, target)
    look_up_rows(s, [sums, *epilogue][-1], shared[-1:], target)
    schedule_packing(s, packed, target)
    s.compute_at(copy.block, (*shared, *within)[-1])
    _interleave(s, copy, rows, depth)
    made = dict[str, Sequence[Loop]]()
    if plan.strip is not None:
        made = {pad: s.compute_at(pad, shared[-1]) for pad in pads}
    parallelize_outer(s, name, target, found.work, within=shared)
    for pad, own in made.items():
        _fill_around(s, pad, own, target)
    s.tensorize(j, found.dot.name)


DOT_WINDOWS = Rule("dot_windows", _match, _plan, _schedule)


def _maker(s: Schedule, name: str, access: Access) -> str:
    """The block that makes an operand."""
    makers = s.producers(name)
    return next(m.name for m in makers if s.block_of(m).writes[0].buffer is access.buffer)


def _fill_around(s: Schedule, pad: str, loops: Sequence[Loop], target: Target) -> None:
    """Fill a strip with the padding value, then copy the part inside the image."""
    fill = s.decompose_padding(pad, loops[0]).name
    s.fuse(*s.loops(fill)[-len(loops) :])
    vectorize_innermost(s, fill, target)
    *_, pixels, _channels = loops
    seams = seams_along(pixels.var, s.loop_of(pixels).extent, [s.block_of(pad).predicate])
    parts = {*(s.loop_partition(pixels, *seams) if seams else [pixels])}
    for name in [b.name for b in s.blocks() if not parts.isdisjoint(s.loops(b))]:
        vectorize_innermost(s, name, target)


def _interleave(s: Schedule, copy: Packed, rows: int, depth: int) -> None:
    """Interleave the rows of a window, `_LANES` channels at a time."""
    across, along = (loop_along(s, copy, k) for k in (copy.across, copy.along))
    assert across is not None and along is not None
    between = loops_between(s, copy.block, across, (along,))
    channels, lanes = s.split(across, None, _LANES)
    s.reorder(*between, channels, lanes, along)
    dtype = s.block_of(copy.block).writes[0].buffer.dtype
    s.tensorize(lanes, interleave(dtype, _LANES, rows, dtype, depth))
