"""Products by tensor instructions: tiles of operands in shared memory, multiplied by whole warps.

for m: for n: for k: C[m, n] += A[m, k] * B[k, n]
-->
for tiles of C in blocks:
    for z, y in warps: for x in threads: acc = 0
    for k0:
        for z, y, x in threads: As[…] = A[…]                   a tile of each operand
        for z, y, x in threads: Bs[…] = B[…]
        for z, y in warps: for k1, i, j: acc[z, y, :, i, j, :] += As[…] · Bs[…]      `ir.warps`
    for z, y, x in threads: C[…] = acc[…]                      with the epilogue

A tile in shared memory has the layout of its operand, by rows or by columns, where the instruction
can take both; tiles of bytes are contiguous along the sum.
"""

from __future__ import annotations

from tilewright.ir import (
    GROUP_ROWS,
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
    match_followed,
    match_product,
)
from tilewright.schedule.rules.gpu.row_results import (
    RowResults,
    finish_by_rows,
    has_rows,
    stage_rows,
)
from tilewright.schedule.rules.gpu.tensor_tiles import (
    UNKNOWN,
    TensorPlan,
    plan_tensor_product,
)
from tilewright.schedule.rules.gpu.warp_tiles import (
    WarpTile,
    finish,
    has_instruction,
    lay_out_copy,
    lay_out_sums,
    runs_along_sum,
    start_sums,
)
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _match(s: Schedule, name: str, target: Target) -> Product | None:
    found = match_product(s, name, target)
    return found if found is not None and _fits(found, target) else None


def _match_followed(s: Schedule, name: str, target: Target) -> Product | None:
    found = match_followed(s, name, target)
    return found if found is not None and _fits(found, target) else None


def _fits(p: Product, target: Target) -> bool:
    """Whether there is an instruction, and the sum is long enough for copies of its operands."""
    is_long = len(p.reduced) == 1 and (extent_of(p.reduced[0]) or UNKNOWN) >= TILE_SIDE
    return is_long and has_instruction(p, target)


def _schedule(s: Schedule, name: str, home: str, tensor: TensorPlan) -> None:
    plan, warps, stages = tensor
    p, tile = plan.product, WarpTile(plan.product, plan.tile, warps)
    sides = (p.row.var, p.column.var)
    (depth,) = (it.var for it in p.reduced)
    copies = [copying(s, name, access.buffer) for access in (p.contraction.a, p.contraction.b)]
    lie_freely = tile.factors.lie_freely
    along = [not lie_freely or runs_along_sum(s, name, c, depth) for c in copies]
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    outside, (inner,) = cut_sum(s, [loops[depth]], plan)
    k1, k = s.split(inner, None, tile.factors.steps)
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
    by_rows = warps.are_groups and has_rows(s, name, home, tile)
    stage = stage_rows(s, name, grid) if by_rows else None
    s.reverse_compute_at(home, grid)
    start = s.decompose_reduction(name, k0).name
    for copy in copies:
        s.compute_at(copy, k0)
    s.bind(grid, "blockIdx.x")
    for copy, side, by_sum in zip(copies, sides, along, strict=True):
        own = own_variable(s, name, copy, depth if by_sum else side)
        spread_copy(s, copy, k0, own, warps.threads)
    start_sums(s, name, start, tile, grid)
    if stage is None:
        finish(s, name, home, tile, grid)
    else:
        finish_by_rows(s, RowResults(name, stage, home, tile), grid)
    lay_out_sums(s, name, tile)
    for copy, side, by_sum, size in zip(copies, sides, along, plan.tile, strict=True):
        steps = (depth, plan.steps)
        lay_out_copy(s, name, copy, (side, size), steps, by_sum=by_sum, by_groups=warps.are_groups)
    for loop in inner_tiles:
        s.unroll(loop)
    for loop, axis in zip(warp_loops, ("threadIdx.z", "threadIdx.y"), strict=False):
        s.bind(loop, axis)
    s.tensorize(i, _instruction(tile, along).name)
    s.annotate(k0, STAGES, stages)


def _instruction(tile: WarpTile, along: list[bool]) -> WarpProduct | GroupProduct:
    if tile.warps.are_groups:
        return GroupProduct(tile.factors, tile.size.columns, not along[0], along[1])
    return WarpProduct(tile.factors, not along[0], along[1])


def _with_epilogue(s: Schedule, name: str, tensor: TensorPlan, _target: Target) -> None:
    with_epilogue(s, name, tensor.plan, _tiling(tensor))


def _alone(s: Schedule, name: str, tensor: TensorPlan, _target: Target) -> None:
    alone(s, name, tensor.plan, _tiling(tensor))


def _tiling(tensor: TensorPlan) -> Tiling:
    def tile(s: Schedule, name: str, home: str, plan: Plan) -> None:
        _schedule(s, name, home, tensor._replace(plan=plan))

    return tile


TENSOR_PRODUCTS = Rule("tensor_products", _match_followed, plan_tensor_product, _with_epilogue)
TENSOR_PRODUCTS_ALONE = Rule("tensor_products_alone", _match, plan_tensor_product, _alone)
