"""merge(first, second)"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import For, Function, Seq, seq
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, rebind
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.dependence import everything_is_in_blocks, parts_meet_in_iterations
from tilewright.schedule.facts.legality import extents_are_equal, loop_is_plain
from tilewright.schedule.handles import Loop


def merge(tree: Tree, first: For, second: For) -> Edit:
    """Make one loop of two consecutive ones.

    for i in 8: T[i] = A[i] + 1      -->      for i in 8:
    for j in 8: B[j] = T[j] * 2                   T[i] = A[i] + 1
                                                  B[i] = T[i] * 2
    """
    check(tree, first, second)
    return Edit(_merged(tree, first, second), (Loop(first.var),))


def check(tree: Tree, first: For, second: For) -> None:
    what = f"cannot merge loops {first.var.name} and {second.var.name}"
    require(
        tree,
        what,
        loop_is_plain(first),
        loop_is_plain(second),
        _second_follows(tree, first, second),
        extents_are_equal(first, second),
        everything_is_in_blocks(first),
        everything_is_in_blocks(second),
    )
    after, earlier = Tree(_merged(tree, first, second)), tree.blocks_in(first)
    loop = after.loops[first.var]
    require(tree, what, parts_meet_in_iterations(after, loop, {b.name for b in earlier}))


def _merged(tree: Tree, first: For, second: For) -> Function:
    ranges = tree.ranges_at(first).with_extent(first.var, first.extent)
    body = rebind(second.body, {second.var: first.var}, ranges)
    merged = replace(first, body=seq(first.body, body))
    around = tree.parent[first]
    assert isinstance(around, Seq)
    kept = [merged if s is first else s for s in around.statements if s is not second]
    return tree.replace(around, seq(*kept))


def _second_follows(tree: Tree, first: For, second: For) -> Fault | None:
    around = tree.parent[first]
    if isinstance(around, Seq):
        following = around.statements[around.statements.index(first) + 1 :]
        if following and following[0] is second:
            return None
    reason = f"loop {second.var.name} does not stand right behind loop {first.var.name}"
    return Fault(reason, "name neighbours, the first of them first", second)
