"""Products: tiles of both operands in shared memory, tiles of the result in registers.

for m: for n: for k: C[m, n] += A[m, k] * B[k, n]
-->
for tiles of C in blocks:
    for y, x in threads: acc = 0
    for k0:
        for y, x in threads: As[…] = A[…]                      a tile of each operand
        for y, x in threads: Bs[…] = B[…]
        for y, x in threads: for k1: for i, j: acc[y, x, i, j] += As[k1, …] * Bs[k1, …]
    for y, x in threads: C[…] = acc[…]                         with what follows element by element

The operands are copied by the variables of the product (`reindex`): windows of images are gathered
there, padding included. Other variables of rows, columns and batches choose a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir import Block, Buffer, Const, Expr, Load, Var, all_exprs, const, free_vars
from tilewright.schedule.handles import Loop
from tilewright.schedule.primitives.buffers.merge_dimensions import GATHERS
from tilewright.schedule.rules.analysis import (
    Access,
    extent_of,
    is_conditional,
    is_injective,
    is_intermediate,
    stores_of,
)
from tilewright.schedule.rules.gpu.grid import count_of, extent_of_loop, fused
from tilewright.schedule.rules.gpu.product_plan import (
    LANES,
    SIDE,
    Plan,
    Product,
    match_followed,
    match_product,
    plan_product,
    product_of,
)
from tilewright.schedule.rules.gpu.results import following
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Steps of a sum that are written out.
_STEPS: Final = 4


def _with_epilogue(s: Schedule, name: str, plan: Plan, _target: Target) -> None:
    """What follows element by element is computed by the threads that have the sums."""
    home = following(s, name)
    assert home is not None
    plan, cut = _prepared(s, name, plan)
    if cut is not None:
        s.compute_inline(cut)
    s.set_scope(name, stores_of(s.block_of(name))[0].buffer, "local")
    _schedule(s, name, home, plan)


def _alone(s: Schedule, name: str, plan: Plan, _target: Target) -> None:
    plan, home = _prepared(s, name, plan)
    if home is None:
        home = s.cache_write(name, 0, "local").name
    else:
        s.set_scope(name, stores_of(s.block_of(name))[0].buffer, "local")
    _schedule(s, name, home, plan)


def _prepared(s: Schedule, name: str, plan: Plan) -> tuple[Plan, str | None]:
    """Operands copied by the variables of the product, and padded to whole tiles; gives the block
    that cuts the result out, if there is one."""
    p = plan.product
    for access in (p.contraction.a, p.contraction.b):
        if _gathering(s, name, access.buffer) is None:
            s.reindex(name, access.buffer)
    sizes = {p.row.var: plan.tile.rows, p.column.var: plan.tile.columns}
    sizes[p.reduced[len(p.reduced) - 1 - plan.inner].var] = plan.steps
    factors = [sizes.get(it.var, 1) for it in s.block_of(name).iters]
    cut = None
    if s.can("pad", name, factors):
        before = {b.name for b in s.consumers(name)}
        s.pad(name, factors)
        (cut,) = [b.name for b in s.consumers(name) if b.name not in before] or [None]
    found = product_of(s.block_of(name))
    assert found is not None
    return plan._replace(product=found), cut


def _schedule(s: Schedule, name: str, home: str, plan: Plan) -> None:
    p, tile = plan.product, plan.tile
    copies = [_copying(s, name, access.buffer) for access in (p.contraction.a, p.contraction.b)]
    block = s.block_of(name)
    loops = {it.var: loop for it, loop in zip(block.iters, s.loops(name), strict=True)}
    m0, *row = s.split(loops[p.row.var], None, *_parts(tile.rows))
    n0, *column = s.split(loops[p.column.var], None, *_parts(tile.columns))
    outside, inside = _cut_sum(s, [loops[it.var] for it in p.reduced], plan)
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
        _spread_copy(s, copy, k0, _own_variable(s, name, copy, side.var))
    _bind_tile(s, [ty, tx, mh, ml, nh, nl])
    _write_out_steps(s, inside[-1])
    _bind_tile(s, [loop for loop in s.loops(start) if loop != grid])
    _finish(s, name, home, plan)
    _lay_out_sums(s, name, plan)
    for copy, side, size in zip(copies, (p.row, p.column), tile, strict=True):
        _lay_out_copy(s, name, copy, side.var, size, plan)


PRODUCTS = Rule("products", match_followed, plan_product, _with_epilogue)
PRODUCTS_ALONE = Rule("products_alone", match_product, plan_product, _alone)


def _parts(size: int) -> tuple[int, int, int]:
    """A side of a tile as parts, threads and neighbours: what threads touch at once lies
    together."""
    each = size // SIDE
    lanes = min(LANES, each)
    return each // lanes, SIDE, lanes


def _copying(s: Schedule, name: str, operand: Buffer) -> str:
    """The block that copies tiles of an operand; gathering and padding is done there."""
    (copy,) = [p.name for p in s.producers(name) if s.block_of(p).writes[0].buffer is operand]
    s.set_scope(copy, 0, "shared")
    pending = [b.name for b in s.producers(copy)]
    while pending:
        producer = pending.pop()
        block = s.block_of(producer)
        if not is_injective(block) or not is_intermediate(s, block.writes[0].buffer):
            continue
        is_copy = is_conditional(block) or isinstance(stores_of(block)[0].value, Load)
        if is_copy and len(s.consumers(producer)) == 1 and s.can("compute_inline", producer):
            s.compute_inline(producer)
            pending = [b.name for b in s.producers(copy)]
    return copy


def _gathering(s: Schedule, name: str, operand: Buffer) -> str | None:
    """The block that gathers an operand for this product, if there is one."""
    writers = [p.name for p in s.producers(name) if s.block_of(p).writes[0].buffer is operand]
    gathers = len(writers) == 1 and GATHERS in s.block_of(writers[0]).annotations
    return writers[0] if gathers and len(s.consumers(writers[0])) == 1 else None


def _cut_sum(s: Schedule, loops: list[Loop], plan: Plan) -> tuple[list[Loop], list[Loop]]:
    """The loops of a sum that go from tile to tile, and those inside of one."""
    place = len(loops) - 1 - plan.inner
    outer, inner = s.split(loops[place], None, plan.steps)
    return [*loops[:place], outer], [inner, *loops[place + 1 :]]


def _spread_copy(s: Schedule, copy: str, around: Loop, side: Var) -> None:
    """A tile copied by all threads, neighbours of the source by neighbouring threads."""
    block, loops = s.block_of(copy), list(s.loops(copy))
    inside = loops[loops.index(around) + 1 :]
    load = next(e for e in all_exprs(block.body) if isinstance(e, Load))
    access = Access(load.buffer, load.indices)
    runs = [it.var for it in block.iters if access.step(it.var) == 1]
    bound = [(it.var, b) for it, b in zip(block.iters, block.bindings, strict=True)]
    last = [x for x in inside if any(v in runs and _feeds(x, b) for v, b in bound)]
    order = [*(x for x in inside if x not in last), *last]
    if len(order) > 1:
        s.reorder(*order)
    elements, each = count_of(s, order) or 0, SIDE * SIDE * LANES
    is_wide = side in runs and elements % each == 0 and _is_aligned(block, access, side)
    if is_wide:
        several, y, x, lanes = s.split(fused(s, order), None, SIDE, SIDE, LANES)
        s.vectorize(lanes)
    else:
        several, y, x = s.split(fused(s, order), None, SIDE, SIDE)
    s.reorder(y, x, several)
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    if (extent_of_loop(s, several) or SIDE + 1) <= SIDE:
        s.unroll(several)


def _is_aligned(block: Block, access: Access, side: Var) -> bool:
    """Whether vectors along a variable begin at multiples of their length, and nothing keeps an
    element of one from being read."""
    if is_conditional(block) or access.buffer.dtype.itemsize > 4:
        return False
    strides = [
        access.step(it.var) for it in block.iters if it.var is not side and extent_of(it) != 1
    ]
    return all(step is not None and step % LANES == 0 for step in strides)


def _own_variable(s: Schedule, name: str, copy: str, side: Var) -> Var:
    """The variable of a copy that stands for a variable of the product."""
    tile = s.block_of(copy).writes[0].buffer
    loads = [e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load)]
    place = next(e for e in loads if e.buffer is tile).indices.index(side)
    own = stores_of(s.block_of(copy))[0].indices[place]
    assert isinstance(own, Var)
    return own


def _feeds(loop: Loop, binding: Expr) -> bool:
    return loop.var in free_vars(binding)


def _bind_tile(s: Schedule, loops: Sequence[Loop]) -> None:
    """Two loops over threads, then those of a thread, the last by vectors."""
    y, x, *outer, lanes = loops
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    for loop in outer:
        s.unroll(loop)
    s.vectorize(lanes)


def _write_out_steps(s: Schedule, loop: Loop) -> None:
    """Several steps at a time: what the next ones read is on its way while sums are added up."""
    extent = extent_of_loop(s, loop) or 0
    if extent > 2 * _STEPS and extent % _STEPS == 0:
        _, loop = s.split(loop, None, _STEPS)
        extent = _STEPS
    if 0 < extent <= 2 * _STEPS:
        s.unroll(loop)


def _positions(s: Schedule, name: str, p: Product) -> tuple[int, int]:
    """The dimensions of the result along which rows and columns run."""
    places = {index: k for k, index in enumerate(stores_of(s.block_of(name))[0].indices)}
    return places[p.row.var], places[p.column.var]


def _finish(s: Schedule, name: str, home: str, plan: Plan) -> None:
    """What takes the sums on, by the threads that have them."""
    block, acc = s.block_of(home), stores_of(s.block_of(name))[0].buffer
    load = next(e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer is acc)
    sides: list[tuple[Loop, Loop, Loop]] = []
    for place, size in zip(_positions(s, name, plan.product), plan.tile, strict=True):
        (loop,) = _loops_of(s, home, load.indices[place])
        high, thread, low = s.split(loop, *_parts(size))
        sides.append((high, thread, low))
    (mh, ty, ml), (nh, tx, nl) = sides
    s.reorder(ty, tx, mh, ml, nh, nl)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    for loop in (mh, ml, nh):
        s.unroll(loop)
    store = stores_of(s.block_of(home))[0]
    column = load.indices[_positions(s, name, plan.product)[1]]
    assert isinstance(column, Var)
    is_run = Access(store.buffer, store.indices).step(column) == 1
    s.vectorize(nl) if is_run else s.unroll(nl)


def _loops_of(s: Schedule, name: str, var: Expr) -> list[Loop]:
    """The serial loops around a block that feed a variable of it."""
    block = s.block_of(name)
    values = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.var is var]
    serial = [loop for loop in s.loops(name) if s.loop_of(loop).kind == "serial"]
    return [loop for loop in serial if any(loop.var in free_vars(v) for v in values)]


def _lay_out_sums(s: Schedule, name: str, plan: Plan) -> None:
    """Sums by the threads that have them: acc[…, y, x, rows, columns]."""
    row, column = _positions(s, name, plan.product)
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
    """A tile with the sum's variables outside: threads read neighbours along the other one.

    Rows that are written across are a bit more than a row apart, so that few fall into one bank.
    """
    tile = s.block_of(copy).writes[0].buffer
    (load,) = [
        e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load) and e.buffer is tile
    ]
    variables = [i for i in load.indices if isinstance(i, Var)]
    assert len(variables) == len(load.indices), "reindex reads by variables alone"
    steps = _steps_of(plan)
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
    if is_known and not _runs_along(s.block_of(copy), side, variables) and any(steps.values()):
        axis = s.block_of(copy).writes[0].buffer.ndim - 2
        s.storage_align(copy, 0, axis, size, LANES)


def _steps_of(plan: Plan) -> dict[Var, int]:
    """How many steps along each variable of the sum a tile holds."""
    reduced = plan.product.reduced
    place = len(reduced) - 1 - plan.inner
    whole = {it.var: extent_of(it) or 1 for it in reduced[place + 1 :]}
    return {**{it.var: 1 for it in reduced[:place]}, reduced[place].var: plan.steps, **whole}


def _runs_along(copy: Block, side: Var, variables: Sequence[Var]) -> bool:
    """Whether the source has neighbours along a variable of the product."""
    place = variables.index(side)
    load = next(e for e in all_exprs(copy.body) if isinstance(e, Load))
    return Access(load.buffer, load.indices).step(copy.iters[place].var) == 1
