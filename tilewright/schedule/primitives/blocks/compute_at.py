"""compute_at(block, loop)"""

from __future__ import annotations

from tilewright.ir import Block, Buffer, For, Function, Range, Stmt, Var, seq
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.access import accesses_in
from tilewright.schedule.facts.block_facts import (
    block_is_no_part_of_another,
    block_is_repeatable,
    block_is_the_only_writer,
    buffer_is_intermediate,
    only_its_domain_limits,
    reduction_is_whole,
)
from tilewright.schedule.facts.boxes import (
    Rebuilt,
    instances_touching,
    ranges_inside,
    under_loops,
)
from tilewright.schedule.facts.flow import (
    indices_are_ready,
    inputs_keep_their_values,
    instances_have_elements_of_their_own,
    loops_at_once,
    parallel_loops_stay_parallel,
)
from tilewright.schedule.facts.place import part_of
from tilewright.schedule.handles import Loop


def compute_at(tree: Tree, block: Block, loop: For) -> Edit:
    """Compute a block in a loop of its consumers: in each iteration, just what that one needs.

    for i in 8: T[i] = A[i] + 1      -->      for i in 8:
    for i in 8: B[i] = T[i] * 2                   T[i] = A[i] + 1
                                                  B[i] = T[i] * 2
    """
    check(tree, block, loop)
    function, moved = _moved(tree, block, loop)
    return Edit(function, tuple(Loop(part.var) for part in moved.loops))


def check(tree: Tree, block: Block, loop: For) -> None:
    what = f"cannot compute block {block.name} at loop {loop.var.name}"
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        _loop_is_elsewhere(tree, block, loop),
        block_is_repeatable(block),
        instances_have_elements_of_their_own(block),
        only_its_domain_limits(tree, block),
        reduction_is_whole(tree, block),
    )
    for buffer in buffers_touched(block)[1]:
        require(
            tree,
            what,
            buffer_is_intermediate(tree, buffer),
            block_is_the_only_writer(tree, block, buffer),
            _all_readers_are_in(tree, block, loop, buffer),
        )
    require(tree, what, _there_is_a_reader(tree, block))
    require(tree, what, inputs_keep_their_values(tree, block, loop))
    require(tree, what, indices_are_ready(tree, block, loop))
    if loops_at_once(tree, loop):
        after = Tree(_moved(tree, block, loop)[0])
        require(tree, what, parallel_loops_stay_parallel(after, after.blocks[block.name]))


def _loop_is_elsewhere(tree: Tree, block: Block, loop: For) -> Fault | None:
    if tree.is_above(loop, block):
        return Fault(
            f"block {block.name} is in loop {loop.var.name} already",
            "choose a loop of its consumers",
            loop,
        )
    scope = tree.scope(loop)
    if scope is not None:
        return Fault(f"loop {loop.var.name} stands in block {scope.name}", "", loop)
    return None


def _all_readers_are_in(tree: Tree, block: Block, loop: For, buffer: Buffer) -> Fault | None:
    for reader in tree.readers(buffer):
        if reader is not block and not tree.is_above(loop, reader):
            return Fault(
                f"block {reader.name} reads {buffer.name} outside of loop {loop.var.name}",
                "choose a loop around all of its consumers",
                reader,
            )
    return None


def _there_is_a_reader(tree: Tree, block: Block) -> Fault | None:
    if tree.consumers(block):
        return None
    return Fault(f"nobody reads what block {block.name} writes", "", block)


def _moved(tree: Tree, block: Block, loop: For) -> tuple[Function, Rebuilt]:
    at = part_of(tree, loop, tree.consumers(block)[0])
    ranges = ranges_inside(tree, loop)
    moved = under_loops(block, _needed_instances(tree, block, loop), ranges)
    changes: dict[Stmt, Stmt] = {tree.removable(block): seq(), at: seq(moved.nest, at)}
    return tree.replace_all(changes), moved


def _needed_instances(tree: Tree, block: Block, loop: For) -> dict[Var, Range]:
    """The part of `block`'s domain that one iteration of `loop` needs."""
    found: list[dict[Var, Range]] = []
    accesses = accesses_in(tree, loop)
    for region in block.writes:
        reads = [a for a in accesses if a.buffer is region.buffer and not a.is_write]
        if reads:
            found.append(instances_touching(tree, region, reads, block.iters, loop))
    # Where several outputs need different parts, the iterator runs over its whole domain.
    first, *others = found
    return {v: part for v, part in first.items() if all(o.get(v) == part for o in others)}
