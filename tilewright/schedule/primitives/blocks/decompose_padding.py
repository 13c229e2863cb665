"""decompose_padding(block, loop)"""

from __future__ import annotations

from tilewright.arith import conjuncts, knowing_nothing, prove
from tilewright.ir import (
    Block,
    Expr,
    For,
    Select,
    Store,
    loads_in,
    make_block,
    renew,
    seq,
    substitute,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_loops, fresh_name, needed, nest
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_is_no_part_of_another,
    block_is_spatial,
)
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.writing import Written, stores_of


def decompose_padding(tree: Tree, block: Block, loop: For) -> Edit:
    """Fill a padded buffer before `loop`, which then copies only what is inside.

    for i in 10:                                -->      for i in 10: P[i] = 0
        P[i] = A[i - 1] if 1 <= i < 9 else 0             for i in 10:
                                                             P[i] = A[i - 1] where 1 <= i < 9
    """
    check(tree, block, loop)
    written = _padded(block)
    assert not isinstance(written, Fault) and isinstance(written.value, Select)
    name = fresh_name(f"{block.name}_pad", tree.blocks)
    fill = _fill(tree, block, loop, written, name)
    copy = tree.rebuilt(loop, block, _copy(tree, block, written))
    return Edit(tree.replace(loop, seq(fill, copy)), (BlockRef(name),))


def check(tree: Tree, block: Block, loop: For) -> None:
    what = f"cannot decompose the padding of block {block.name} at loop {loop.var.name}"
    padded = _padded(block)
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        block_is_spatial(block),
        padded if isinstance(padded, Fault) else None,
        _loop_holds_the_block_alone(tree, block, loop),
    )


def _padded(block: Block) -> Written | Fault:
    """The store of `A[…] if inside else constant`."""
    wrong = Fault(
        f"block {block.name} does not store `value if inside else padding`",
        "use this for blocks that pad one buffer",
        block,
    )
    stores = stores_of(block)
    if isinstance(stores, Fault) or len(stores) != 1:
        return wrong
    value = stores[0].value
    if not isinstance(value, Select) or loads_in(value.b) or loads_in(value.condition):
        return wrong
    return stores[0]


def _loop_holds_the_block_alone(tree: Tree, block: Block, loop: For) -> Fault | None:
    if loop not in tree.loops_above(block):
        return Fault(
            f"loop {loop.var.name} is not around block {block.name}",
            f"choose one of the loops around {block.name}",
            loop,
        )
    other = next((b for b in tree.blocks_in(loop) if b is not block), None)
    if other is None:
        return None
    return Fault(f"block {other.name} is in loop {loop.var.name} too", "", other)


def _fill(tree: Tree, block: Block, loop: For, written: Written, name: str) -> For:
    assert isinstance(written.value, Select)
    loops = tree.loops_above(block)
    copies, values = fresh_loops(loops[loops.index(loop) :])
    fill = make_block(
        name,
        block.iters,
        [substitute(b, values) for b in block.bindings],
        Store(written.buffer, written.indices, written.value.b),
        predicate=substitute(block.predicate, values),
        span=block.span,
    )
    nested = nest(copies, renew(fill))
    assert isinstance(nested, For)
    return nested


def _copy(tree: Tree, block: Block, written: Written) -> Block:
    assert isinstance(written.value, Select)
    ranges = tree.ranges_at(block)
    bound = dict(zip((it.var for it in block.iters), block.bindings, strict=True))
    inside = [substitute(c, bound) for c in _not_obvious(block, written.value.condition)]
    return make_block(
        block.name,
        block.iters,
        block.bindings,
        Store(written.buffer, written.indices, written.value.a),
        predicate=needed([*conjuncts(block.predicate), *inside], ranges),
        annotations=block.annotations,
        span=block.span,
    )


def _not_obvious(block: Block, condition: Expr) -> list[Expr]:
    """The parts of a condition that the iterators' domains do not imply."""
    ranges = knowing_nothing()
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    return [c for c in conjuncts(condition) if not prove(c, ranges)]
