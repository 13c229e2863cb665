"""rfactor(loop, axis)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.arith import Ranges, conjuncts
from tilewright.ir import (
    Block,
    Buffer,
    Expr,
    For,
    If,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    all_of,
    free_vars,
    make_block,
    renew,
    seq,
    substitute,
    substitute_stmt,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import (
    Edit,
    fresh_loops,
    fresh_name,
    nest,
    with_buffers,
)
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.legality import loop_is_plain, one_block_stands_alone
from tilewright.schedule.facts.reduction import (
    SpatialNest,
    Update,
    block_is_reduction,
    recognised_update,
)
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.stages import new_buffer


def rfactor(tree: Tree, loop: For, axis: int = 0) -> Edit:
    """Make a reduction loop spatial: partial results along a new axis, combined afterwards.

    for i: for k_0: for k_1:      -->      for i: for k_0: for k_1:
        C[i] += A[i, k_0, k_1]                 C_rf[k_1, i] += A[i, k_0, k_1]
                                           for i: for k_1:
                                               C[i] += C_rf[k_1, i]

    Loops that contain more than the block stay around both parts, as those over a scan's steps do.
    """
    check(tree, loop, axis)
    block = _block_below(tree, loop)
    update = recognised_update(_unguarded(block))
    assert isinstance(update, Update)
    plan = _Plan.of(tree, block, loop)
    partial = [_partial_buffer(tree, s.buffer, loop, axis) for s in update.stores]
    name = fresh_name(f"{block.name}_rf", tree.blocks)
    factored = _factored_block(name, plan, update, partial, axis)
    top = plan.loops[0]
    combining = _combining_nest(plan, update, partial, axis, tree.ranges_at(top))
    function = tree.replace(top, seq(tree.rebuilt(top, block, factored), combining))
    return Edit(with_buffers(function, *partial), (BlockRef(name),))


def check(tree: Tree, loop: For, axis: int = 0) -> None:
    what = f"cannot factor the reduction along loop {loop.var.name}"
    require(tree, what, loop_is_plain(loop), _there_is_one_block(tree, loop))
    block = _block_below(tree, loop)
    require(
        tree,
        what,
        block_is_reduction(block),
        one_block_stands_alone(loop, block),
        _no_loop_outside_reduces(tree, block),
        _loop_only_reduces(block, loop),
        _is_only_writer(tree, block),
    )
    update = recognised_update(_unguarded(block))
    if isinstance(update, Fault):
        require(tree, what, update)
        return
    require(tree, what, _axis_exists(update, axis), _parts_are_separate(tree, block, loop))


# ---- what makes it legal ------------------------------------------------------------------------


def _there_is_one_block(tree: Tree, loop: For) -> Fault | None:
    if len(tree.blocks_in(loop)) == 1:
        return None
    return Fault("there is not one block inside it", "choose a loop around one reduction", loop)


def _loop_only_reduces(block: Block, loop: For) -> Fault | None:
    kinds = {
        it.kind
        for it, value in zip(block.iters, block.bindings, strict=True)
        if loop.var in free_vars(value)
    }
    if kinds == {"reduce"}:
        return None
    return Fault(
        f"it does not feed reduce iterators of block {block.name} alone",
        "choose a loop of the reduction",
        loop,
    )


def _own_loops(tree: Tree, block: Block) -> tuple[For, ...]:
    """The loops around the block that contain nothing else."""
    return tuple(x for x in tree.loops_above(block) if one_block_stands_alone(x, block) is None)


def _no_loop_outside_reduces(tree: Tree, block: Block) -> Fault | None:
    own = {loop.var for loop in _own_loops(tree, block)}
    for loop in tree.loops_above(block):
        for it, value in zip(block.iters, block.bindings, strict=True):
            if loop.var not in own and it.kind == "reduce" and loop.var in free_vars(value):
                reason = f"loop {loop.var.name} holds more than the loops around block {block.name}"
                return Fault(reason, "choose a loop around one block alone", loop)
    return None


def _is_only_writer(tree: Tree, block: Block) -> Fault | None:
    for region in block.writes:
        for other in tree.writers(region.buffer):
            if other is not block and not tree.is_above(other, block):
                reason = f"block {other.name} writes {region.buffer.name} too"
                return Fault(reason, "rfactor before the reduction is taken apart", other)
    return None


def _axis_exists(update: Update, axis: int) -> Fault | None:
    rank = min(s.buffer.ndim for s in update.stores)
    if 0 <= axis <= rank:
        return None
    return Fault(f"there is no axis {axis} in {rank + 1} dimensions", f"use 0 to {rank}")


def _parts_are_separate(tree: Tree, block: Block, loop: For) -> Fault | None:
    """No loop or condition mixes the factored part of the reduction with anything else."""
    plan = _Plan.of(tree, block, loop)
    split = {other.var for other in plan.split}
    for it, value in zip(block.iters, block.bindings, strict=True):
        mixed = free_vars(value) & split
        if it not in plan.replaced and mixed:
            name = min(v.name for v in mixed)
            return Fault(f"loop {name} feeds {it.var.name} as well", "rfactor before fusing", block)
    outside = {other.var for other in plan.loops} - split
    for condition in plan.inner_conditions:
        if free_vars(condition) & outside:
            return Fault(
                f"the predicate {condition} mixes the reduction with other loops",
                "rfactor before splitting unevenly or fusing",
                block,
            )
    return None


# ---- the edit -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """The reduction iterators that the loop determines, and all loops that determine these."""

    block: Block
    loop: For
    loops: tuple[For, ...]
    replaced: tuple[Iter, ...]
    split: tuple[For, ...]
    outer_conditions: tuple[Expr, ...]
    inner_conditions: tuple[Expr, ...]

    @staticmethod
    def of(tree: Tree, block: Block, loop: For) -> _Plan:
        loops = _own_loops(tree, block)
        replaced, split = _closure(block, loop, loops)
        variables = {other.var for other in split}
        parts = conjuncts(block.predicate)
        outer = tuple(c for c in parts if free_vars(c).isdisjoint(variables))
        inner = tuple(c for c in parts if not free_vars(c).isdisjoint(variables))
        return _Plan(block, loop, loops, replaced, split, outer, inner)


def _closure(
    block: Block, loop: For, loops: tuple[For, ...]
) -> tuple[tuple[Iter, ...], tuple[For, ...]]:
    """Reduce iterators linked to the loop, directly or by shared loops; and these loops."""
    reducing = {
        it: free_vars(value)
        for it, value in zip(block.iters, block.bindings, strict=True)
        if it.kind == "reduce"
    }
    known, before = {loop.var}, set[Var]()
    every = {other.var for other in loops}
    while known != before:
        before = set(known)
        for used in reducing.values():
            known |= used & every if used & known else set()
    replaced = tuple(it for it, used in reducing.items() if used & known)
    return replaced, tuple(other for other in loops if other.var in known)


def _partial_buffer(tree: Tree, buffer: Buffer, loop: For, axis: int) -> Buffer:
    shape = (*buffer.shape[:axis], loop.extent, *buffer.shape[axis:])
    return new_buffer(tree, f"{buffer.name}_rf", buffer.dtype, shape)


def _at(indices: tuple[Expr, ...], index: Expr, axis: int) -> tuple[Expr, ...]:
    return (*indices[:axis], index, *indices[axis:])


def _iter(var: Var, loop: For, plan: _Plan) -> Iter:
    return Iter(var, loop.extent, "spatial" if loop is plan.loop else "reduce")


def _factored_block(
    name: str, plan: _Plan, update: Update, partial: Sequence[Buffer], axis: int
) -> Stmt:
    """The block that computes the partial results."""
    block = plan.block
    own = {loop.var: Var(f"v{loop.var.name}", loop.var.dtype) for loop in plan.split}
    index = own[plan.loop.var]
    values: dict[Var, Expr] = {}
    iters: list[tuple[Iter, Expr]] = []
    for it, value in zip(block.iters, block.bindings, strict=True):
        if it not in plan.replaced:
            iters.append((it, value))
            continue
        if not values:
            iters += [(_iter(own[f.var], f, plan), f.var) for f in plan.split]
        values[it.var] = substitute(value, own)
    indices = [_at(s.indices, index, axis) for s in update.stores]
    loads = [Load(b, i) for b, i in zip(partial, indices, strict=True)]
    init = seq(
        *(Store(b, i, e) for b, i, e in zip(partial, indices, update.identities, strict=True))
    )
    body = substitute_stmt(update.stored(loads, update.values), values)
    # A missing instance would not initialise its partial result: so test inside the block.
    conditions = [substitute(c, own) for c in plan.inner_conditions]
    if isinstance(block.body, If):
        conditions.append(substitute(block.body.condition, values))
    if conditions:
        body = If(all_of(*conditions), body)
    made = make_block(
        name,
        [it for it, _ in iters],
        [value for _, value in iters],
        body,
        predicate=all_of(*plan.outer_conditions),
        init=init,
        annotations=block.annotations,
        span=block.span,
    )
    return renew(made)


def _combining_nest(
    plan: _Plan, update: Update, partial: Sequence[Buffer], axis: int, ranges: Ranges
) -> Stmt:
    """The loop nest that combines the partial results."""
    block = plan.block
    # All partial results exist, even those of no elements.
    whole = replace(block, predicate=all_of(*plan.outer_conditions))
    own = SpatialNest.of(whole, plan.loops, ranges)
    (last,), renamed = fresh_loops([plan.loop])
    index = Var(f"v{plan.loop.var.name}", plan.loop.var.dtype)
    loads = [Load(s.buffer, s.indices) for s in update.stores]
    parts = [
        Load(b, _at(s.indices, index, axis)) for b, s in zip(partial, update.stores, strict=True)
    ]
    made = make_block(
        block.name,
        [*own.iters, Iter(index, plan.loop.extent, "reduce")],
        [*own.bindings, renamed[plan.loop.var]],
        update.stored(loads, parts),
        predicate=own.predicate,
        init=block.init,
        annotations=block.annotations,
        span=block.span,
    )
    return nest([*own.loops, last], renew(made))


def _unguarded(block: Block) -> Block:
    """The block without the condition around its update, such as rfactor leaves."""
    body = block.body
    return replace(block, body=body.then) if isinstance(body, If) and not body.otherwise else block


def _block_below(tree: Tree, loop: For) -> Block:
    return tree.blocks_in(loop)[0]
