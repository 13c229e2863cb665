"""Products: tiles of both operands in shared memory, tiles of the result in registers.

for m: for n: for k: C[m, n] += A[m, k] * B[k, n]
-->
for tiles of C in blocks:
    for y, x in threads: acc = 0
    for k0:
        for y, x in threads: As[…] = A[…]                      a tile of each operand
        for y, x in threads: Bs[…] = B[…]
        for y, x in threads: for k1: for i, j: acc[y, x, i, j] += As[k1, …] * Bs[k1, …]
    for y, x in threads: C[…] = acc[…]                         with the epilogue

The operands' copies are indexed by the variables of the product (`reindex`): windows of images are
gathered there, padding included. Other variables of rows, columns and batches select a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir import Const, Expr, Load, Var, all_exprs, const
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import Access, stores_of
from tilewright.schedule.rules.gpu.grid import extent_of_loop, fused
from tilewright.schedule.rules.gpu.operands import (
    alone,
    copying,
    cut_sum,
    loops_of,
    own_variable,
    positions,
    runs_along,
    spread_copy,
    steps_of,
    with_epilogue,
)
from tilewright.schedule.rules.gpu.product_plan import (
    LANES,
    SIDE,
    Plan,
    match_followed,
    match_product,
    plan_product,
)
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.schedule import Schedule

#: Steps of the sum that are unrolled.
_STEPS: Final = 4
_THREADS: Final = (("threadIdx.y", SIDE), ("threadIdx.x", SIDE))


def _schedule(s: Schedule, name: str, home: str, plan: Plan) -> None:
    p, tile = plan.product, plan.tile
    copies = [copying(s, name, access.buffer) for access in (p.contraction.a, p.contraction.b)]
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    m0, *row = s.split(loops[p.row.var], None, *_parts(tile.rows))
    n0, *column = s.split(loops[p.column.var], None, *_parts(tile.columns))
    outside, inside = cut_sum(s, [loops[it.var] for it in p.reduced], plan)
    over = [*(loops[it.var] for it in p.others), m0, n0]
    (mh, ty, ml), (nh, tx, nl) = row, column
    s.reorder(*over, *outside, ty, tx, *inside, mh, ml, nh, nl)
    grid, k0 = fused(s, over), fused(s, outside)
    s.reverse_compute_at(home, grid)
    start = s.decompose_reduction(name, k0).name
    for copy in copies:
        s.compute_at(copy, k0)
    s.bind(grid, "blockIdx.x")
    for copy, side in zip(copies, (p.row, p.column), strict=True):
        spread_copy(s, copy, k0, own_variable(s, name, copy, side.var), _THREADS)
    _bind_tile(s, [ty, tx, mh, ml, nh, nl])
    _write_out_steps(s, inside[-1])
    _bind_tile(s, [loop for loop in s.loops(start) if loop != grid])
    _finish(s, name, home, plan)
    _lay_out_sums(s, name, plan)
    for copy, side, size in zip(copies, (p.row, p.column), tile, strict=True):
        _lay_out_copy(s, name, copy, side.var, size, plan)


PRODUCTS = Rule(
    "products", match_followed, plan_product, lambda s, b, p, _: with_epilogue(s, b, p, _schedule)
)
PRODUCTS_ALONE = Rule(
    "products_alone", match_product, plan_product, lambda s, b, p, _: alone(s, b, p, _schedule)
)


def _parts(size: int) -> tuple[int, int, int]:
    """A side of a tile as parts, threads and lanes: what threads access at once is contiguous."""
    each = size // SIDE
    lanes = min(LANES, each)
    return each // lanes, SIDE, lanes


def _bind_tile(s: Schedule, loops: Sequence[Loop]) -> None:
    """Bind two loops to threads; unroll those within a thread, and vectorize the last."""
    y, x, *outer, lanes = loops
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    for loop in outer:
        s.unroll(loop)
    s.vectorize(lanes)


def _write_out_steps(s: Schedule, loop: Loop) -> None:
    """Unroll several steps: the next ones' operands are loaded while sums are added up."""
    extent = extent_of_loop(s, loop) or 0
    if extent > 2 * _STEPS and extent % _STEPS == 0:
        _, loop = s.split(loop, None, _STEPS)
        extent = _STEPS
    if 0 < extent <= 2 * _STEPS:
        s.unroll(loop)


def _finish(s: Schedule, name: str, home: str, plan: Plan) -> None:
    """Compute the epilogue in the threads that hold the sums."""
    block, acc = s.block_of(home), stores_of(s.block_of(name))[0].buffer
    load = next(e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer is acc)
    sides: list[tuple[Loop, Loop, Loop]] = []
    for place, size in zip(positions(s, name, plan.product), plan.tile, strict=True):
        (loop,) = loops_of(s, home, load.indices[place])
        high, thread, low = s.split(loop, *_parts(size))
        sides.append((high, thread, low))
    (mh, ty, ml), (nh, tx, nl) = sides
    s.reorder(ty, tx, mh, ml, nh, nl)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    for loop in (mh, ml, nh):
        s.unroll(loop)
    store = stores_of(s.block_of(home))[0]
    column = load.indices[positions(s, name, plan.product)[1]]
    assert isinstance(column, Var)
    is_run = Access(store.buffer, store.indices).step(column) == 1
    s.vectorize(nl) if is_run else s.unroll(nl)


def _lay_out_sums(s: Schedule, name: str, plan: Plan) -> None:
    """Lay out the sums by the threads that hold them: acc[…, y, x, rows, columns]."""
    row, column = positions(s, name, plan.product)
    acc = stores_of(s.block_of(name))[0].buffer

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        others = [index for k, index in enumerate(indices) if k not in (row, column)]
        tiles, threads, own = list[Expr](), list[Expr](), list[Expr]()
        for place, size in ((row, plan.tile.rows), (column, plan.tile.columns)):
            index = indices[place]
            high, side, low = _parts(size)
            tiles.append(index // size)
            threads.append(index // low % side)
            own += [index // (low * side) % high] if high > 1 else []
            own += [index % low] if low > 1 else []
        return (*others, *tiles, *threads, *own)

    s.transform_layout(name, acc, layout)


def _lay_out_copy(s: Schedule, name: str, copy: str, side: Var, size: int, plan: Plan) -> None:
    """Store a tile with the sum's variables outside: threads read contiguous elements along `side`.

    Rows of a tile that is written transposed are padded, to avoid most bank conflicts.
    """
    tile = s.block_of(copy).writes[0].buffer
    (load,) = [
        e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load) and e.buffer is tile
    ]
    variables = [i for i in load.indices if isinstance(i, Var)]
    assert len(variables) == len(load.indices), "reindex reads by variables alone"
    steps = steps_of(plan)
    extents = [e.value if isinstance(e, Const) else None for e in tile.shape]
    is_known = None not in extents

    def layout(*indices: Expr) -> tuple[Expr, ...]:
        own = dict(zip(variables, indices, strict=True))
        summed = [own[v] for v in variables if v in steps]
        others = [own[v] for v in variables if v not in steps and v is not side]
        if not is_known:
            return (*others, *summed, own[side])
        number: Expr = const(0)
        for variable, extent in zip(variables, extents, strict=True):
            part = size if variable is side else steps.get(variable, 1)
            number = number * -(-int(extent or 1) // part) + own[variable] // part
        inside = [own[v] % steps[v] for v in variables if v in steps and steps[v] > 1]
        return (number, *inside, own[side] % size)

    s.transform_layout(copy, tile, layout)
    if is_known and not runs_along(s.block_of(copy), side, variables) and any(steps.values()):
        axis = s.block_of(copy).writes[0].buffer.ndim - 2
        s.storage_align(copy, 0, axis, size, LANES)
