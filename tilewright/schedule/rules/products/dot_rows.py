"""Products with few rows, or with a number known only at run time, and convolutions, by dot-product
instructions that read rows in place.

    pack the columns: once, where they are constants
    for panel of columns (parallel):
        for row, or a few at a time:
            sums over the reduction, by the instruction: a group of a row times all columns
            output = epilogue(sums)

A panel stays in L1 while rows are streamed, and the first row reads it in order. Convolutions are
such products too: their columns come in blocks, and their reductions in runs. There, cores take
parts of an image that fit L2, or panels where the weights outnumber the pixels; while pixels use
one panel, the next is prefetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.ir import Block, Buffer, Const, DType, Iter, Var, free_vars, is_const
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import Dot, dots_for
from tilewright.schedule.rules.analysis import Contraction, as_contraction, constants_of, extent_of
from tilewright.schedule.rules.epilogue import place_epilogue
from tilewright.schedule.rules.padding import padding_before, place_padding
from tilewright.schedule.rules.products.packing import Layout, pack_operand, schedule_packing
from tilewright.schedule.rules.products.product import (
    begin_inlined_epilogue,
    place_results,
    prefetch_next_panel,
    start_with_vectors,
)
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.rules.threads import Threads
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The most vectors of columns, and rows, of a tile of sums.
_VECTORS, _ROWS = 8, 4
#: The most rows of a tile where their number is known: where one vector of a row serves several
#: steps, and where groups are broadcast.
_LONG_ROWS, _BROADCAST_ROWS = 7, 16
#: Steps of a sum from which the taller tiles pay: they leave the epilogue fewer registers.
_LONG_SUM = 64
#: Operations to narrow and store a vector of results that does not fill a whole register.
_NARROWING = 3
#: A panel of `_ROWS` vectors may take one part in this many of L1, so that it is still there when
#: the next tile reads it.
_PANEL_SHARE = 4
#: The largest fraction of L1 for a panel and the rows of a tile, where these are broadcast.
_BROADCAST_SHARE = 0.875
#: The value assumed for an extent that is known only at run time.
_UNKNOWN = 64
#: An image has at least two variables of rows: height and width.
_WINDOW_ROWS = 2


@dataclass(frozen=True)
class RowProduct:
    """C[…, j] += A[…, k] * B[…, k, j], with rows of any number of dimensions. B is constant, or one
    matrix for an unknown number of rows.

    It may be a step of a scan. Of several variables of columns, or of the reduction, the last one
    is contiguous.
    """

    contraction: Contraction
    column: Iter
    depth: Iter

    @property
    def blocks(self) -> tuple[Iter, ...]:
        """Variables over blocks of columns."""
        return self.contraction.columns[:-1]

    @property
    def runs(self) -> tuple[Iter, ...]:
        """Variables over runs of the reduction."""
        return self.contraction.reduced[:-1]

    @property
    def types(self) -> tuple[DType, DType, DType]:
        c = self.contraction
        return c.a.buffer.dtype, c.b.buffer.dtype, c.out.buffer.dtype

    @property
    def rows(self) -> tuple[Iter, ...]:
        return self.contraction.rows


def as_row_product(block: Block, constants: frozenset[Buffer]) -> RowProduct | None:
    """The block as a product of rows by packed columns, if it is one."""
    c = as_contraction(block)
    if c is None or not c.columns or not c.reduced or not _is_plain(c, block):
        return None
    known = all(extent_of(it) is not None for it in (*c.columns, *c.reduced))
    if not (known if c.b.buffer in constants else _may_have_many_rows(c, block)):
        return None
    column, depth = c.columns[-1], c.reduced[-1]
    neighbours = c.out.step(column.var) == 1 and c.a.step(depth.var) == 1
    is_window = len(c.columns) > 1 or len(c.reduced) > 1
    pixels = [it for it in block.iters if it.kind == "spatial" and it not in c.columns]
    # Threads share the rows of pixels of windows; only matrix products may have batches.
    if is_window and (len(pixels) < _WINDOW_ROWS or c.batch):
        return None
    return RowProduct(c, column, depth) if neighbours else None


def _may_have_many_rows(c: Contraction, block: Block) -> bool:
    """Whether packing columns that are computed at run time pays: for bytes and an unknown number
    of rows, and not anew in every step of a scan. Other extents may be unknown, too."""
    is_single = all(len(part) == 1 for part in (c.rows, c.columns, c.reduced))
    in_steps = any(it.kind == "ordered" for it in block.iters)
    are_bytes = c.a.buffer.dtype.is_integer
    return is_single and are_bytes and not in_steps and extent_of(c.rows[-1]) is None


def _is_plain(c: Contraction, block: Block) -> bool:
    """Whether every index is a single variable or the step of a scan; those of rows may also add
    the position in a window."""
    times = {it.var for it in block.iters if it.kind == "ordered"}
    own = {c.reduced[-1].var}
    indices = (i for access in (c.b, c.out) for i in access.indices)
    return all(isinstance(i, Var | Const) or free_vars(i) <= times for i in indices) and all(
        isinstance(i, Var | Const)
        or free_vars(i) <= times
        or (len(c.reduced) > 1 and own.isdisjoint(free_vars(i)))
        for i in c.a.indices
    )


@dataclass(frozen=True)
class DotRowsPlan:
    """The instruction, and how many rows and vectors of columns make a tile."""

    product: RowProduct
    dot: Dot
    rows: int
    vectors: int


def _match(s: Schedule, name: str, target: Target) -> tuple[RowProduct, Dot] | None:
    """Such a product that the target has an instruction for, and the instruction."""
    product = as_row_product(s.block_of(name), _known_before(s, name))
    dot = None if product is None else row_dot_for(target, *product.types)
    return None if product is None or dot is None else (product, dot)


def _known_before(s: Schedule, name: str) -> frozenset[Buffer]:
    """Constants, and buffers that the producers of `name` compute from constants alone."""
    constants = constants_of(s.function)
    made = [s.block_of(producer) for producer in s.producers(name)]
    converted = [b for b in made if all(read.buffer in constants for read in b.reads)]
    return constants.union(write.buffer for b in converted for write in b.writes)


def _plan(found: tuple[RowProduct, Dot], target: Target, choices: Choices) -> DotRowsPlan:
    product, dot = found
    rows = choices.choose("rows", _rows_at_once(product, dot, target))
    vectors = choices.choose("vectors", _vectors(product, dot, rows, target))
    return DotRowsPlan(product, dot, rows, vectors)


def row_dot_for(target: Target, a: DType, b: DType, out: DType) -> Dot | None:
    """The best instruction that multiplies a group of one row by several columns."""
    return next((d for d in dots_for(target, a, b, out) if d.rows == 1), None)


def _rows_at_once(product: RowProduct, dot: Dot, target: Target) -> list[int]:
    """Candidate numbers of rows in a tile.

    Where the number of rows is unknown, every possible remainder gets a version of its own: few,
    the largest first. Where it is known, tiles may be taller, the fastest first; unless sums are
    short and one vector of a row serves several steps.
    """
    extent = extent_of(product.rows[-1]) if product.rows else 1
    is_broadcast = _is_broadcast(product, dot, target)
    by_lanes = steps_at_once(product, dot, target) > 1
    if extent is None or (by_lanes and _steps(product, dot) < _LONG_SUM):
        return list(range(min(_ROWS, extent or _ROWS), 0, -1))

    def slowness(rows: int) -> float:
        vectors = _vectors(product, dot, rows, target)[0]
        return _cycles(product, dot, rows, vectors, target)

    # One vector of columns and one group of a row are held beside the sums.
    most = min(_BROADCAST_ROWS, target.vector_registers - 2) if is_broadcast else _LONG_ROWS
    return sorted(range(min(most, extent), 0, -1), key=slowness)


def _vectors(product: RowProduct, dot: Dot, rows: int, target: Target) -> list[int]:
    """Candidate numbers of vectors of columns in a tile, the fastest by `_cycles` first.

    The most is what registers hold and, where rows share them, what fits L1 (but at least
    `_VECTORS` / 2).
    """
    steps = steps_at_once(product, dot, target)
    held = (target.vector_registers - (1 if steps == 1 else rows)) // (rows + 1)
    columns = extent_of(product.column) or _UNKNOWN
    size = dot.columns * (extent_of(product.depth) or _UNKNOWN) * product.types[1].itemsize
    fit = _VECTORS if not product.rows else target.caches.l1d * 3 // 4 // size
    most = min(-(-columns // dot.columns), held, max(_VECTORS // 2, min(_VECTORS, fit)))

    def slowness(vectors: int) -> float:
        return _cycles(product, dot, rows, vectors, target)

    return sorted(range(most, 0, -1), key=slowness)


def _cycles(product: RowProduct, dot: Dot, rows: int, vectors: int, target: Target) -> float:
    """Predicted time of all columns of a row of pixels, by tiles of this many rows and vectors.

    Every tile reads panels that do not fit L1 from L2, and results that do not fill whole registers
    take longer. Where the number of rows is unknown and groups are broadcast, tiles at edges count
    as whole ones.
    """
    shared, timing = steps_at_once(product, dot, target), target.timing
    steps, group = _steps(product, dot), dot.depth * product.types[0].itemsize
    panel = dot.columns * dot.depth * product.types[1].itemsize
    is_broadcast = _is_broadcast(product, dot, target)
    room, size = target.caches.l1d / _PANEL_SHARE, _ROWS * panel * steps
    if is_broadcast:
        room, size = target.caches.l1d * _BROADCAST_SHARE, (vectors * panel + rows * group) * steps
    is_far = size > room

    def cycles(r: int, v: int) -> float:
        loads = r / shared + v
        busy = max(r * v / target.fma_ports, loads / timing.load_ports, target.fma_latency)
        return busy + timing.load_cycles * loads + (timing.loop_cycles if is_broadcast else 0)

    def one(r: int, v: int) -> float:
        read = timing.l2_cycles_per_byte * v * panel if is_far else 0
        is_whole = v * dot.columns % target.lanes(product.types[0]) == 0
        narrowing = 0 if is_whole else _NARROWING * r * v / target.fma_ports
        return (cycles(r, v) + read) * steps + narrowing

    extent = extent_of(product.rows[-1]) if product.rows else 1
    along = _parts(-(-(extent_of(product.column) or _UNKNOWN) // dot.columns), vectors)
    if shared == 1 and not is_broadcast:
        return cycles(rows, vectors) * sum(n for _, n in along)
    across = _parts(extent or rows, rows)
    return sum(n * m * one(r, v) for r, n in across for v, m in along)


def _is_broadcast(product: RowProduct, dot: Dot, target: Target) -> bool:
    """Whether the number of rows is known and groups are broadcast: tiles can have any shape."""
    is_known = all(extent_of(row) is not None for row in product.rows[-1:])
    return is_known and steps_at_once(product, dot, target) == 1


def _steps(product: RowProduct, dot: Dot) -> float:
    return prod(extent_of(it) or 1 for it in product.contraction.reduced) / dot.depth


def _parts(extent: int, tile: int) -> list[tuple[int, int]]:
    """The sizes of tiles that cover an extent, and how many there are of each."""
    whole, rest = divmod(extent, tile)
    return [(tile, whole), (rest, 1)] if rest else [(tile, whole)]


def steps_at_once(product: RowProduct, dot: Dot, target: Target) -> int:
    """How many steps share one vector of a row, where the instruction can take a single lane."""
    lanes = target.lanes(product.types[0]) // dot.depth
    whole = (extent_of(product.depth) or 0) % (lanes * dot.depth) == 0
    return lanes if target.has_lane_fma and whole else 1


def _pixels_per_part(product: RowProduct, dimensions: int, target: Target) -> int:
    """How many rows of pixels (with one dimension: pixels) are in a part of an image.

    At most half of L2, and at most one core's share where the columns take less memory than the
    pixels: then each pixel is read by one core only.
    """
    c = product.contraction
    extents = [1, 1, *(extent_of(it) or _UNKNOWN for it in product.rows)]
    extent, *across = extents[-dimensions:]
    channels = prod(extent_of(it) or 1 for it in c.reduced if _is_channel(it, product))
    size = prod(across) * channels * c.a.buffer.dtype.itemsize
    columns = prod(extent_of(it) or 1 for it in (*c.columns, *c.reduced))
    columns *= c.b.buffer.dtype.itemsize
    most = -(-extent // target.cores) if columns <= extent * size else extent
    return max(1, min(most, target.caches.l2 // 2 // size))


def _is_channel(it: Iter, product: RowProduct) -> bool:
    """Whether a variable of the reduction is by itself an index of the pixels, not part of one."""
    return any(i is it.var for i in product.contraction.a.indices)


def _schedule(s: Schedule, name: str, plan: DotRowsPlan, target: Target) -> None:
    """Cut the block `name` by `plan` and tensorize it."""
    dot, product = plan.dot, plan.product
    work = prod(extent_of(it) or _UNKNOWN for it in s.block_of(name).iters)
    pads = padding_before(s, name)
    _pad(s, name, plan, steps_at_once(product, dot, target))
    c = as_contraction(s.block_of(name))
    assert c is not None
    layout = Layout(plan.vectors * dot.columns, dot.depth)
    own = [it.var for it in product.runs]
    packed = pack_operand(s, name, c.b, product.column.var, product.depth.var, layout, own)
    epilogue = begin_inlined_epilogue(s, name)
    iters = s.block_of(name).iters
    loops = {it.var: loop for it, loop in zip(iters, s.loops(name), strict=True)}
    column, depth = (loops.pop(it.var) for it in (product.column, product.depth))
    blocks, runs = ([loops.pop(it.var) for it in part] for part in (product.blocks, product.runs))
    around = _around(s, name, loops, c)
    outer, inner = _cut_rows(s, loops, plan)
    panel, vectors, j = s.split(column, None, plan.vectors, dot.columns)
    steps, together, k = s.split(depth, None, steps_at_once(product, dot, target), dot.depth)
    if blocks or runs:
        # A window: pixels in L2 are streamed past a panel.
        single = is_const(s.loop_of(outer[-2]).extent, 1)
        images, outer = (outer[:-1], outer[-1:]) if single else (outer[:-2], outer[-2:])
        size = _pixels_per_part(product, len(outer), target)
        parts, outer[0] = s.split(outer[0], None, -(-size // plan.rows) if single else size)
        around = [*around, *images, parts]
    s.reorder(*around, *blocks, panel, *outer, *runs, steps, together, *inner, vectors, j, k)
    start_with_vectors(s, name, s.decompose_reduction(name, (*runs, steps)[0]).name, dot)
    for loop in (together, *inner, vectors):
        s.unroll(loop)
    lanes = target.lanes(product.types[2])
    if _is_broadcast(product, dot, target):
        place_results(s, epilogue, (panel, *outer)[-1], lanes)
    else:
        place_epilogue(s, epilogue, (panel, *outer)[-1], lanes, target)
    schedule_packing(s, packed, target)
    is_worth = work >= target.timing.fork_operations and target.cores > 1
    threads = Threads(s, target, is_worth=is_worth)
    if around and threads.are_busy(around):
        place_padding(s, pads, around[-1], target)
    threads.share(around, [*blocks, panel])
    if target.caches.l2 and (blocks or runs):
        prefetch_next_panel(s, name, outer[0])
    s.tensorize(j, dot.name)


DOT_ROWS = Rule("dot_rows", _match, _plan, _schedule)


def _pad(s: Schedule, name: str, plan: DotRowsPlan, steps: int) -> None:
    """Pad columns to whole vectors, and the reduction to whole groups; a reduction of unknown
    length to whole vectors of a row, which hold `steps` groups."""
    product, dot = plan.product, plan.dot
    group = dot.depth if extent_of(product.depth) else dot.depth * steps
    wanted = {product.column.var: plan.vectors * dot.columns, product.depth.var: group}
    iters = s.block_of(name).iters
    factors = [wanted.get(it.var, 1) for it in iters]
    if any((extent_of(it) or 1) % f for it, f in zip(iters, factors, strict=True)):
        s.pad(name, factors)


def _around(s: Schedule, name: str, loops: dict[Var, Loop], c: Contraction) -> list[Loop]:
    """The loops over batches, removed from `loops`; removes those over steps of a scan too, which
    stay where they are."""
    for it in s.block_of(name).iters:
        if it.kind == "ordered":
            del loops[it.var]
    return [loops.pop(it.var) for it in c.batch]


def _cut_rows(
    s: Schedule, loops: dict[Var, Loop], plan: DotRowsPlan
) -> tuple[list[Loop], list[Loop]]:
    """The loops over tiles of rows, and those within a tile."""
    if plan.rows == 1:
        return list(loops.values()), []
    last = loops.pop(plan.product.rows[-1].var)
    around, within = s.split(last, None, plan.rows)
    return [*loops.values(), around], [within]
