"""peel(loop, size)"""

from __future__ import annotations

from tilewright.arith import simplify
from tilewright.ir import Const, For, const, seq
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.legality import loop_is_plain
from tilewright.schedule.handles import Loop
from tilewright.schedule.primitives.loops.loop_partition import (
    part_of,
    reductions_begin_in_one_part,
)


def peel(tree: Tree, loop: For, size: int) -> Edit:
    """Split the iterations of a loop into a multiple of `size`, in whole tiles, and the remainder.

    The extent need not be known. The remainder gets copies of the blocks: C, C_1, …

        for i in n: B[i]      -->      for i_0 in n // 4 * 4: B[i_0]
                                       for i_1 in n % 4: B[n // 4 * 4 + i_1]
    """
    check(tree, loop, size)
    ranges = tree.ranges_at(loop)
    whole = simplify(loop.extent // size * size, ranges)
    first = part_of(tree, loop, 0, const(0), whole, set(tree.blocks))
    taken = set(tree.blocks) | set(Tree(tree.function.with_body(first)).blocks)
    rest = part_of(tree, loop, 1, whole, simplify(loop.extent % size, ranges), taken)
    return Edit(tree.replace(loop, seq(first, rest)), (Loop(first.var), Loop(rest.var)))


def check(tree: Tree, loop: For, size: int) -> None:
    what = f"cannot peel loop {loop.var.name} to multiples of {size}"
    require(tree, what, loop_is_plain(loop), _leaves_both(loop, size))
    require(tree, what, reductions_begin_in_one_part(tree, loop))


def _leaves_both(loop: For, size: int) -> Fault | None:
    if size < 2:
        return Fault(f"{size} is no number of iterations", "give 2 or more", loop)
    if isinstance(loop.extent, Const) and not 0 < loop.extent.value % size < loop.extent.value:
        return Fault(f"of {loop.extent} iterations, one part would be empty", "leave it", loop)
    return None
