"""Products by tensor instructions: tiles of operands in shared memory, multiplied by whole warps.

for m: for n: for k: C[m, n] += A[m, k] * B[k, n]
-->
for tiles of C in blocks:
    for z, y in warps: for x in threads: acc = 0
    for k0:
        for z, y, x in threads: As[…] = A[…]                   a tile of each operand
        for z, y, x in threads: Bs[…] = B[…]
        for z, y in warps: for k1, i, j: acc[z, y, :, i, j, :] += As[…] · Bs[…]      `ir.warps`
    for z, y, x in threads: C[…] = acc[…]                      with what follows element by element

A tile lies in shared memory as its operand does: by rows or by columns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.ir import (
    GROUP,
    GROUP_COLUMNS,
    GROUP_ROWS,
    NEIGHBOURS,
    PITCH,
    STAGES,
    TILE_SIDE,
    GroupProduct,
    WarpProduct,
)
from tilewright.schedule.rules.analysis import extent_of
from tilewright.schedule.rules.gpu.grid import fused
from tilewright.schedule.rules.gpu.operands import (
    Tiling,
    alone,
    copying,
    cut_sum,
    own_variable,
    spread_copy,
    with_epilogue,
)
from tilewright.schedule.rules.gpu.product_plan import (
    Plan,
    Product,
    Tile,
    match_followed,
    match_product,
)
from tilewright.schedule.rules.gpu.warp_tiles import (
    Warps,
    WarpTile,
    finish,
    has_instruction,
    lay_out_copy,
    lay_out_sums,
    runs_along_sum,
    start_sums,
)
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: What a size counts as that is known only when the program runs: tokens, or a small batch.
_UNKNOWN: Final = 256
#: Steps of the sum whose operands are in shared memory at the same time, the best first.
_STEPS: Final = (64, 32, 16)
#: Of how many iterations the operands are in shared memory at once, at most, and the part of a
#: multiprocessor's memory that they may take: two blocks should fit.
_STAGES: Final = 4
_SHARE: Final = 0.5


class _Shape(NamedTuple):
    """A tile and the warps that compute it."""

    tile: Tile
    warps: Warps


_BY_WARPS: Final = (
    _Shape(Tile(128, 128), Warps(2, 4)),
    _Shape(Tile(64, 128), Warps(2, 4)),
    _Shape(Tile(128, 64), Warps(4, 2)),
    _Shape(Tile(64, 64), Warps(2, 2)),
    _Shape(Tile(32, 64), Warps(2, 2)),
    _Shape(Tile(64, 32), Warps(2, 2)),
    _Shape(Tile(32, 32), Warps(2, 2)),
    _Shape(Tile(16, 64), Warps(1, 4)),
    _Shape(Tile(64, 16), Warps(4, 1)),
    _Shape(Tile(16, 32), Warps(1, 2)),
    _Shape(Tile(32, 16), Warps(2, 1)),
    _Shape(Tile(16, 16), Warps(1, 1)),
)
_BY_GROUPS: Final = tuple(
    _Shape(Tile(rows, columns), Warps(rows // GROUP_ROWS, GROUP, are_groups=True))
    for rows in (64, 128, 256)
    for columns in GROUP_COLUMNS
    if rows * columns <= 128 * 256
)


class _TensorPlan(NamedTuple):
    """A plan with the warps that compute a tile."""

    plan: Plan
    warps: Warps


def _match(s: Schedule, name: str, target: Target) -> Product | None:
    found = match_product(s, name, target)
    return found if found is not None and _fits(found, target) else None


def _match_followed(s: Schedule, name: str, target: Target) -> Product | None:
    found = match_followed(s, name, target)
    return found if found is not None and _fits(found, target) else None


def _fits(p: Product, target: Target) -> bool:
    """Whether there is an instruction, and enough of a sum that its operands can be copied for."""
    is_long = len(p.reduced) == 1 and (extent_of(p.reduced[0]) or _UNKNOWN) >= TILE_SIDE
    return is_long and has_instruction(p, target)


def _plan(found: Product, target: Target, choices: Choices) -> _TensorPlan:
    shapes = [*_BY_WARPS, *(_BY_GROUPS if _suits_groups(found, target) else ())]
    fitting = [shape for shape in shapes if _is_filled(found, shape)]
    tile, warps = choices.choose("tile", sorted(fitting, key=lambda s: _cost(found, s, target)))
    length = extent_of(found.reduced[0]) or _UNKNOWN
    own = min(_STEPS, key=lambda steps: -(-length // steps) * steps)
    each = (PITCH,) if warps.are_groups else (own, *(n for n in _STEPS if n != own))
    steps = choices.choose("steps", each)
    return _TensorPlan(Plan(found, tile, 0, steps), warps)


def _suits_groups(found: Product, target: Target) -> bool:
    """Whether groups of warps can multiply: tiles lie in shared memory one after the other, which
    is known of operands with one size at most that is not."""
    gpu = target.gpu
    sizes = [extent_of(it) for it in (found.row, found.column, *found.others, *found.reduced)]
    return gpu is not None and gpu.has_group_products and sizes.count(None) <= 1


def _is_filled(found: Product, shape: _Shape) -> bool:
    """Whether all warps of a tile have something to compute."""
    (rows, columns), warps = shape
    parts = rows // warps.down, columns if warps.are_groups else columns // warps.over
    sides = zip((found.row, found.column), shape.tile, parts, strict=True)
    return all((extent_of(it) or size) > size - part for it, size, part in sides)


def _cost(found: Product, shape: _Shape, target: Target) -> float:
    """About how many seconds all tiles take, a step of sixteen after the other."""
    gpu, tile = target.gpu, shape.tile
    assert gpu is not None
    count = 1
    for it in found.others:
        count *= extent_of(it) or 1
    for it, side in zip((found.row, found.column), tile, strict=True):
        count *= -(-(extent_of(it) or _UNKNOWN) // side)
    size = found.contraction.a.buffer.dtype.itemsize
    multiplied = 2 * tile.rows * tile.columns * TILE_SIDE * gpu.multiprocessors / gpu.tensor_flops
    copied = (tile.rows + tile.columns) * TILE_SIDE * size * gpu.multiprocessors / gpu.bandwidth
    steps = -(-(extent_of(found.reduced[0]) or _UNKNOWN) // TILE_SIDE)
    rounds = max(1.0, count / gpu.multiprocessors)
    return rounds * (steps * max(multiplied, copied, _STEP_SECONDS) + _TILE_SECONDS)


#: What a step takes at least, and what beginning and ending a tile takes.
_STEP_SECONDS: Final = 1e-7
_TILE_SECONDS: Final = 1e-6


def _stages(tensor: _TensorPlan, target: Target) -> int:
    assert target.gpu is not None
    plan = tensor.plan
    size = plan.product.contraction.a.buffer.dtype.itemsize
    each = (plan.tile.rows + plan.tile.columns) * (plan.steps + NEIGHBOURS) * size
    return max(2, min(_STAGES, int(_SHARE * target.gpu.shared_in_all) // each))


def _schedule(s: Schedule, name: str, home: str, tensor: _TensorPlan, stages: int) -> None:
    plan, warps = tensor
    p, tile = plan.product, WarpTile(plan.product, plan.tile, warps)
    sides = (p.row.var, p.column.var)
    (depth,) = (it.var for it in p.reduced)
    copies = [copying(s, name, access.buffer) for access in (p.contraction.a, p.contraction.b)]
    along = [runs_along_sum(s, name, c, depth) for c in copies]
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    outside, (inner,) = cut_sum(s, [loops[depth]], plan)
    k1, k = s.split(inner, None, TILE_SIDE)
    if warps.are_groups:
        m0, wm, i = s.split(loops[p.row.var], None, warps.down, GROUP_ROWS)
        n0, j = s.split(loops[p.column.var], None, plan.tile.columns)
        warp_loops, inner_tiles = [wm], [k1]
    else:
        m0, wm, mi, i = s.split(loops[p.row.var], None, *tile.parts(0))
        n0, wn, ni, j = s.split(loops[p.column.var], None, *tile.parts(1))
        warp_loops, inner_tiles = [wm, wn], [k1, mi, ni]
    over = [*(loops[it.var] for it in p.others), m0, n0]
    s.reorder(*over, *outside, *warp_loops, *inner_tiles, i, j, k)
    grid, (k0,) = fused(s, over), outside
    s.reverse_compute_at(home, grid)
    start = s.decompose_reduction(name, k0).name
    for copy in copies:
        s.compute_at(copy, k0)
    s.bind(grid, "blockIdx.x")
    for copy, side, by_sum in zip(copies, sides, along, strict=True):
        own = own_variable(s, name, copy, depth if by_sum else side)
        spread_copy(s, copy, k0, own, warps.threads)
    start_sums(s, name, start, tile, grid)
    finish(s, name, home, tile, grid)
    lay_out_sums(s, name, tile)
    for copy, side, by_sum, size in zip(copies, sides, along, plan.tile, strict=True):
        steps = (depth, plan.steps)
        lay_out_copy(s, name, copy, (side, size), steps, by_sum=by_sum, by_groups=warps.are_groups)
    for loop in inner_tiles:
        s.unroll(loop)
    for loop, axis in zip(warp_loops, ("threadIdx.z", "threadIdx.y"), strict=False):
        s.bind(loop, axis)
    s.tensorize(i, _instruction(tensor, along).name)
    s.annotate(k0, STAGES, stages)


def _instruction(tensor: _TensorPlan, along: list[bool]) -> WarpProduct | GroupProduct:
    dtype = tensor.plan.product.contraction.a.buffer.dtype
    if tensor.warps.are_groups:
        return GroupProduct(dtype, tensor.plan.tile.columns, not along[0], along[1])
    return WarpProduct(dtype, not along[0], along[1])


def _with_epilogue(s: Schedule, name: str, tensor: _TensorPlan, target: Target) -> None:
    with_epilogue(s, name, tensor.plan, _tiling(tensor, target))


def _alone(s: Schedule, name: str, tensor: _TensorPlan, target: Target) -> None:
    alone(s, name, tensor.plan, _tiling(tensor, target))


def _tiling(tensor: _TensorPlan, target: Target) -> Tiling:
    stages = _stages(tensor, target)

    def tile(s: Schedule, name: str, home: str, plan: Plan) -> None:
        _schedule(s, name, home, tensor._replace(plan=plan), stages)

    return tile


TENSOR_PRODUCTS = Rule("tensor_products", _match_followed, _plan, _with_epilogue)
TENSOR_PRODUCTS_ALONE = Rule("tensor_products_alone", _match, _plan, _alone)
