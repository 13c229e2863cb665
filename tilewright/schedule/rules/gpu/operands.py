"""Operands of products on GPUs: tiles in shared memory, copied by all threads of a block.

The copies are indexed by the variables of the product (`reindex`), so windows of images are
gathered there, padding included, and padded to whole tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.arith import knowing_nothing, simplify
from tilewright.ir import (
    TRUE,
    Block,
    Buffer,
    Expr,
    Load,
    Select,
    Var,
    all_exprs,
    const,
    free_vars,
    substitute,
)
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
from tilewright.schedule.rules.gpu.grid import WIDE, count_of, extent_of_loop, fused
from tilewright.schedule.rules.gpu.product_plan import Plan, Product, product_of
from tilewright.schedule.rules.gpu.results import following
from tilewright.schedule.schedule import Schedule

#: Schedules a product whose results are read by the second block.
Tiling = Callable[[Schedule, str, str, Plan], None]
#: Copies of up to this many vectors per thread are unrolled.
_MOST_WRITTEN_OUT = 16


def with_epilogue(s: Schedule, name: str, plan: Plan, tile: Tiling) -> None:
    """Schedule a product whose epilogue is computed by the threads that hold the sums."""
    home = following(s, name)
    assert home is not None
    plan, cut = prepare(s, name, plan)
    if cut is not None:
        s.compute_inline(cut)
    s.set_scope(name, stores_of(s.block_of(name))[0].buffer, "local")
    tile(s, name, home, plan)


def alone(s: Schedule, name: str, plan: Plan, tile: Tiling) -> None:
    plan, home = prepare(s, name, plan)
    if home is None:
        home = s.cache_write(name, 0, "local").name
    else:
        s.set_scope(name, stores_of(s.block_of(name))[0].buffer, "local")
    tile(s, name, home, plan)


def prepare(s: Schedule, name: str, plan: Plan) -> tuple[Plan, str | None]:
    """Copy operands, indexed by the variables of the product and padded to whole tiles; gives also
    the block that crops the result, if there is one."""
    p = plan.product
    for access in (p.contraction.a, p.contraction.b):
        is_plain = all(isinstance(index, Var) for index in access.indices)
        if not is_plain or _gathering(s, name, access.buffer) is None:
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


def copying(s: Schedule, name: str, operand: Buffer) -> str:
    """The block that copies tiles of an operand; it does the gathering and padding."""
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
    """The block that gathers an operand for this product only, if there is one."""
    writers = [p.name for p in s.producers(name) if s.block_of(p).writes[0].buffer is operand]
    gathers = len(writers) == 1 and GATHERS in s.block_of(writers[0]).annotations
    return writers[0] if gathers and len(s.consumers(writers[0])) == 1 else None


def cut_sum(s: Schedule, loops: list[Loop], plan: Plan) -> tuple[list[Loop], list[Loop]]:
    """The loops of a sum over tiles, and those within a tile."""
    place = len(loops) - 1 - plan.inner
    outer, inner = s.split(loops[place], None, plan.steps)
    return [*loops[:place], outer], [inner, *loops[place + 1 :]]


def spread_copy(
    s: Schedule, copy: str, around: Loop, along: Var, threads: Sequence[tuple[str, int]]
) -> None:
    """Copy a tile by all threads: adjacent threads copy adjacent elements of the source.

    `along` is the variable of the copy along which the tile is contiguous: vectors run along it.
    `threads` are the axes of a block with their extents, the slowest first.
    """
    block, loops = s.block_of(copy), list(s.loops(copy))
    inside = loops[loops.index(around) + 1 :]
    access, lanes = _source(block), _lanes(block)
    runs = [it.var for it in block.iters if access.step_within(it.var, lanes) == 1]
    bound = [(it.var, b) for it, b in zip(block.iters, block.bindings, strict=True)]
    last = [x for x in inside if any(v in runs and _feeds(x, b) for v, b in bound)]
    order = [*(x for x in inside if x not in last), *last]
    if len(order) > 1:
        s.reorder(*order)
    extents = [extent for _, extent in threads]
    is_even = (count_of(s, order) or 1) % lanes == 0
    is_wide = along in runs and is_even and _is_aligned(block, access, along, lanes)
    several, *rest = s.split(fused(s, order), None, *extents, *([lanes] if is_wide else []))
    if is_wide:
        s.vectorize(rest.pop())
    s.reorder(*rest, several)
    for loop, (axis, _) in zip(rest, threads, strict=True):
        s.bind(loop, axis)
    if (extent_of_loop(s, several) or _MOST_WRITTEN_OUT + 1) <= _MOST_WRITTEN_OUT:
        s.unroll(several)


def _source(copy: Block) -> Access:
    load = next(e for e in all_exprs(copy.body) if isinstance(e, Load))
    return Access(load.buffer, load.indices)


def _lanes(copy: Block) -> int:
    """Elements of a vector."""
    return max(1, WIDE // _source(copy).buffer.dtype.itemsize)


def _is_aligned(block: Block, access: Access, along: Var, lanes: int) -> bool:
    """Whether vectors along a variable are aligned, and are read entirely or not at all."""
    if access.buffer.dtype.itemsize > 4 or not _is_uniform(block, along, lanes):
        return False
    others = [it for it in block.iters if it.var is not along and extent_of(it) != 1]
    return all(access.moves_by(it.var, lanes) for it in others)


def _is_uniform(block: Block, along: Var, lanes: int) -> bool:
    """Whether aligned groups along a variable are read entirely or not at all."""
    if not is_conditional(block):
        return True
    group, place = Var("group", along.dtype), Var("place", along.dtype)
    ranges = knowing_nothing().with_extent(place, const(lanes))
    near = {along: group * lanes + place}
    conditions = [e.condition for e in all_exprs(block.body) if isinstance(e, Select)]
    if not conditions or block.predicate is not TRUE:
        return False
    return all(place not in free_vars(simplify(substitute(c, near), ranges)) for c in conditions)


def own_variable(s: Schedule, name: str, copy: str, side: Var) -> Var:
    """The variable of a copy that corresponds to a variable of the product."""
    tile = s.block_of(copy).writes[0].buffer
    loads = [e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load)]
    place = next(e for e in loads if e.buffer is tile).indices.index(side)
    own = stores_of(s.block_of(copy))[0].indices[place]
    assert isinstance(own, Var)
    return own


def _feeds(loop: Loop, binding: Expr) -> bool:
    return loop.var in free_vars(binding)


def positions(s: Schedule, name: str, p: Product) -> tuple[int, int]:
    """The dimensions of the result along which rows and columns run."""
    places = {index: k for k, index in enumerate(stores_of(s.block_of(name))[0].indices)}
    return places[p.row.var], places[p.column.var]


def loops_of(s: Schedule, name: str, var: Expr, around: Loop | None = None) -> list[Loop]:
    """The serial loops of a block, inside another loop, that determine one of its variables."""
    block, loops = s.block_of(name), list(s.loops(name))
    values = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.var is var]
    inside = loops if around is None else loops[loops.index(around) + 1 :]
    serial = [loop for loop in inside if s.loop_of(loop).kind == "serial"]
    return [loop for loop in serial if any(loop.var in free_vars(v) for v in values)]


def steps_of(plan: Plan) -> dict[Var, int]:
    """How many steps along each variable of the sum are in a tile."""
    reduced = plan.product.reduced
    place = len(reduced) - 1 - plan.inner
    whole = {it.var: extent_of(it) or 1 for it in reduced[place + 1 :]}
    return {**{it.var: 1 for it in reduced[:place]}, reduced[place].var: plan.steps, **whole}


def runs_along(copy: Block, side: Var, variables: Sequence[Var]) -> bool:
    """Whether the source is contiguous along a variable of the product."""
    own = copy.iters[variables.index(side)].var
    return _source(copy).step_within(own, _lanes(copy)) == 1
