"""Which tiles of a product are multiplied by tensor instructions, and by how many warps.

Candidates are ordered by how long all tiles take by a model of the machine; its figures were fitted
to 800 products of 21 sizes on an H200 (`benchmarks/gpu.py` times products).
"""

from __future__ import annotations

from itertools import product
from math import inf
from typing import Final, NamedTuple

from tilewright.ir import (
    EXCHANGED_BYTES,
    GROUP,
    GROUP_COLUMNS,
    GROUP_ROWS,
    ROW_BYTES,
    TILE_SIDE,
    WARP,
    Const,
    Factors,
)
from tilewright.schedule.rules.analysis import extent_of
from tilewright.schedule.rules.gpu.product_plan import Plan, Product, Tile
from tilewright.schedule.rules.gpu.row_results import row_results_bytes
from tilewright.schedule.rules.gpu.warp_tiles import Warps
from tilewright.schedule.rules.rule import Choices
from tilewright.target import Gpu, Target

#: The value assumed for a size known only at run time: tokens, or a small batch.
UNKNOWN: Final = 256
#: Bytes of each row along the sum that are in shared memory together, the best first.
_STEP_BYTES: Final = (128, 64, 32)
#: The most pipeline stages whose operands are in shared memory at once, the fewest that hide the
#: latency of copies, and the fraction of a
#: multiprocessor's shared memory for them without groups: two blocks should fit.
_STAGES: Final = 4
_FEWEST_STAGES: Final = 3
_SHARE: Final = 0.5
#: The same where each multiprocessor has at most one tile: nothing else hides copies' latency.
_STAGES_ALONE: Final = 8


class Shape(NamedTuple):
    """A tile and the warps that compute it."""

    tile: Tile
    warps: Warps


class TensorPlan(NamedTuple):
    """A plan with the warps that compute a tile, and the number of pipeline stages whose operands
    are in shared memory at once."""

    plan: Plan
    warps: Warps
    stages: int


_BY_WARPS: Final = (
    Shape(Tile(128, 128), Warps(2, 4)),
    Shape(Tile(64, 128), Warps(2, 4)),
    Shape(Tile(128, 64), Warps(4, 2)),
    Shape(Tile(64, 64), Warps(2, 2)),
    Shape(Tile(32, 64), Warps(2, 2)),
    Shape(Tile(64, 32), Warps(2, 2)),
    Shape(Tile(32, 32), Warps(2, 2)),
    Shape(Tile(16, 256), Warps(1, 8)),
    Shape(Tile(16, 128), Warps(1, 4)),
    Shape(Tile(16, 64), Warps(1, 4)),
    Shape(Tile(64, 16), Warps(4, 1)),
    Shape(Tile(16, 32), Warps(1, 2)),
    Shape(Tile(32, 16), Warps(2, 1)),
    Shape(Tile(16, 16), Warps(1, 1)),
)
#: Only tiles where every thread copies equally many vectors.
_BY_GROUPS: Final = tuple(
    Shape(Tile(rows, columns), Warps(rows // GROUP_ROWS, GROUP, are_groups=True))
    for rows, columns in product((64, 128, 192), GROUP_COLUMNS)
    if columns * ROW_BYTES // EXCHANGED_BYTES % (rows // GROUP_ROWS * GROUP * WARP) == 0
)
#: Registers of a thread apart from its sums.
_OWN_REGISTERS: Final = 48


def plan_tensor_product(found: Product, target: Target, choices: Choices) -> TensorPlan:
    gpu = target.gpu
    assert gpu is not None
    fitting = _shapes(found, gpu)
    shape = choices.choose("tile", sorted(fitting, key=lambda s: _cost(found, s, gpu)))
    length, factors = _length(found), _factors(found)
    several = [size // factors.a.itemsize for size in _STEP_BYTES]
    # Shorter rows are better than too few stages.
    own = min(
        several,
        key=lambda n: (_stages(found, shape, n, gpu) < _FEWEST_STAGES, -(-length // n) * n),
    )
    others = [n for n in several if n != own]
    steps = choices.choose("steps", (factors.pitch,) if shape.warps.are_groups else (own, *others))
    stages = _stages(found, shape, steps, gpu)
    fewer = [n for n in (stages - 1, stages - 2) if n >= _FEWEST_STAGES]
    stages = choices.choose("stages", (stages, *fewer))
    return TensorPlan(Plan(found, shape.tile, 0, steps), shape.warps, stages)


class Estimate(NamedTuple):
    """Estimated time of a product, and whether groups of warps multiply."""

    seconds: float
    by_groups: bool


def estimate(found: Product, gpu: Gpu) -> Estimate:
    best = min(_shapes(found, gpu), key=lambda shape: _cost(found, shape, gpu))
    return Estimate(_cost(found, best, gpu), best.warps.are_groups)


def estimate_by_groups(found: Product, gpu: Gpu) -> float:
    """Estimated seconds of a product if groups of warps multiply."""
    groups = (shape for shape in _shapes(found, gpu) if shape.warps.are_groups)
    return min((_cost(found, shape, gpu) for shape in groups), default=inf)


def _shapes(found: Product, gpu: Gpu) -> list[Shape]:
    """The tiles that fit a product."""
    groups = [s for s in _BY_GROUPS if _registers(s) <= gpu.registers]
    shapes = [*_BY_WARPS, *(groups if _suits_groups(found, gpu) else ())]
    return [shape for shape in shapes if _is_filled(found, shape)]


def _suits_groups(found: Product, gpu: Gpu) -> bool:
    """Whether groups of warps can multiply, and are fast: tiles are stored contiguously in shared
    memory, which is only known for operands with at most one unknown size; and rows of operands are
    whole vectors, as asynchronous copies need."""
    sizes = [extent_of(it) for it in (found.row, found.column, *found.others, *found.reduced)]
    rows = [c.buffer.shape[-1] for c in (found.contraction.a, found.contraction.b)]
    neighbours = _factors(found).neighbours
    are_wide = all(isinstance(e, Const) and int(e.value) % neighbours == 0 for e in rows)
    return gpu.has_group_products and sizes.count(None) <= 1 and are_wide


def _registers(shape: Shape) -> int:
    """The approximate number of registers of the groups that compute a tile."""
    threads = shape.warps.down * GROUP * WARP
    return threads * (shape.tile.columns // 2 + _OWN_REGISTERS)


def _is_filled(found: Product, shape: Shape) -> bool:
    """Whether all warps of a tile have something to compute. Groups need more rows than one warp
    has, or else the layout of sums could not distinguish the warps of a group."""
    (rows, columns), warps = shape
    if warps.are_groups and (extent_of(found.row) or rows) <= TILE_SIDE:
        return False
    parts = rows // warps.down, columns if warps.are_groups else columns // warps.over
    sides = zip((found.row, found.column), shape.tile, parts, strict=True)
    return all((extent_of(it) or size) > size - part for it, size, part in sides)


def _stages(found: Product, shape: Shape, steps: int, gpu: Gpu) -> int:
    factors, (rows, columns) = _factors(found), shape.tile
    size = factors.a.itemsize
    if not shape.warps.are_groups:
        each = (rows + columns) * (steps + factors.neighbours) * size
        return max(2, min(_STAGES, int(_SHARE * gpu.shared_in_all) // each))
    is_alone = _tiles(found, shape.tile) <= gpu.multiprocessors
    wanted = _STAGES_ALONE if is_alone else _STAGES
    room = gpu.shared - row_results_bytes(shape.tile)
    return max(3, min(wanted, room // ((rows + columns) * steps * size)))


def _tiles(found: Product, tile: Tile) -> int:
    count = 1
    for it in found.others:
        count *= extent_of(it) or 1
    for it, side in zip((found.row, found.column), tile, strict=True):
        count *= -(-(extent_of(it) or UNKNOWN) // side)
    return count


def _factors(found: Product) -> Factors:
    assert found.factors is not None, "there is an instruction"
    return found.factors


def _length(found: Product) -> int:
    return extent_of(found.reduced[0]) or UNKNOWN


# ---- how long it takes --------------------------------------------------------------------------

#: The shortest time of an instruction's steps, and the overhead of a tile.
_STEP_SECONDS: Final = 1e-7
_TILE_SECONDS: Final = 1e-6
#: The fraction of the peak tensor rate that is reached, and how many times as fast as memory the
#: shared L2 is.
_REACHED: Final = 0.91
_CACHED: Final = 2.0
#: The latency of a copy; a tile's overhead with groups of warps, and the time of each result.
_ARRIVAL_SECONDS: Final = 1e-6
_GROUP_SECONDS: Final = 1.5e-6
_RESULT_SECONDS: Final = 1.4e-10


def _cost(found: Product, shape: Shape, gpu: Gpu) -> float:
    """Estimated seconds of all tiles."""
    by = _cost_by_groups if shape.warps.are_groups else _cost_by_warps
    return by(found, shape, gpu)


def _cost_by_warps(found: Product, shape: Shape, gpu: Gpu) -> float:
    """The time of the steps of instructions, one after the other."""
    tile, factors = shape.tile, _factors(found)
    at_once, size = factors.steps, factors.a.itemsize
    flops = gpu.tensor_flops_of(size)
    multiplied = 2 * tile.rows * tile.columns * at_once * gpu.multiprocessors / flops
    copied = (tile.rows + tile.columns) * at_once * size * gpu.multiprocessors / gpu.bandwidth
    steps = -(-_length(found) // at_once)
    rounds = max(1.0, _tiles(found, tile) / gpu.multiprocessors)
    return rounds * (steps * max(multiplied, copied, _STEP_SECONDS) + _TILE_SECONDS)


def _cost_by_groups(found: Product, shape: Shape, gpu: Gpu) -> float:
    """Rounds of tiles, where several share a multiprocessor if they fit."""
    (rows, columns), tiles = shape.tile, _tiles(found, shape.tile)
    size, pitch = _factors(found).a.itemsize, _factors(found).pitch
    iterations = -(-_length(found) // pitch)
    stages = min(iterations, _stages(found, shape, pitch, gpu))
    each = (rows + columns) * pitch * size
    taken = each * stages + row_results_bytes(shape.tile)
    fitting = min(gpu.shared // taken, gpu.registers // _registers(shape))
    together = max(1, min(fitting, -(-tiles // gpu.multiprocessors)))
    peak = _REACHED * gpu.tensor_flops_of(size) / gpu.multiprocessors
    multiplied = 2 * rows * columns * pitch / peak
    copied = each * gpu.multiprocessors / (_CACHED * gpu.bandwidth)
    waiting = _ARRIVAL_SECONDS / max(1, stages - 2)
    iteration = max(together * max(multiplied, copied), waiting)
    # The results of a tile are written while another tile is multiplied.
    written = rows * columns * _RESULT_SECONDS * (together / 2 if together > 1 else 1)
    rounds = -(-tiles // (gpu.multiprocessors * together))
    return rounds * (_GROUP_SECONDS + written + iterations * iteration)
