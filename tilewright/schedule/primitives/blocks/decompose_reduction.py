"""decompose_reduction(block, loop)"""

from __future__ import annotations

from tilewright.ir import Block, For, Range, const, free_vars, is_const, seq
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_name
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.access import are_complete, determined_digits
from tilewright.schedule.facts.dependence import ranges_below
from tilewright.schedule.facts.reduction import block_is_reduction, init_nest, without_init
from tilewright.schedule.handles import BlockRef


def decompose_reduction(tree: Tree, block: Block, loop: For) -> Edit:
    """Move the init of a reduction to separate loops, before `loop`.

    for i:                               -->      for i:
        for k:                                        block C_init: C[i] = 0
            block C:                                  for k:
                init: C[i] = 0                            block C: C[i] += A[i, k]
                C[i] += A[i, k]
    """
    check(tree, block, loop)
    loops = tree.loops_above(block)
    inner = loops[loops.index(loop) :]
    name = fresh_name(f"{block.name}_init", tree.blocks)
    start = init_nest(block, inner, tree.ranges_at(loop), name)
    update = tree.rebuilt(loop, block, without_init(block))
    return Edit(tree.replace(loop, seq(start, update)), (BlockRef(name),))


def check(tree: Tree, block: Block, loop: For) -> None:
    what = f"cannot decompose the reduction of block {block.name} at loop {loop.var.name}"
    require(tree, what, block_is_reduction(block), _loop_is_around(tree, block, loop))
    loops = tree.loops_above(block)
    outer = loops[: loops.index(loop)]
    require(tree, what, _no_loop_reduces(block, outer), _instances_are_distinct(tree, block, loop))


def _loop_is_around(tree: Tree, block: Block, loop: For) -> Fault | None:
    if loop in tree.loops_above(block):
        return None
    return Fault(
        f"loop {loop.var.name} is not around block {block.name}",
        f"choose one of the loops around {block.name}",
        loop,
    )


def _no_loop_reduces(block: Block, outer: tuple[For, ...]) -> Fault | None:
    for it, value in zip(block.iters, block.bindings, strict=True):
        for loop in outer:
            if it.kind == "reduce" and loop.var in free_vars(value):
                return Fault(
                    f"loop {loop.var.name} outside of it reduces too, and the init would run again",
                    f"decompose at loop {loop.var.name} or further out",
                    loop,
                )
    return None


def _instances_are_distinct(tree: Tree, block: Block, loop: For) -> Fault | None:
    """No element is reduced twice below `loop`: the second time would continue from the first."""
    loops = tree.loops_above(block)
    inner = loops[loops.index(loop) :]
    ranges = ranges_below(tree, loop)
    instance = [Range(value, const(1)) for value in block.bindings]
    for below in inner:
        free = {other.var for other in inner}
        if is_const(below.extent, 1) or are_complete(
            determined_digits(instance, below.var, free, ranges)
        ):
            continue
        return Fault(
            f"iterations of loop {below.var.name} reduce the same elements again",
            "decompose at a loop further in",
            below,
        )
    return None
