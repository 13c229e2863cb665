"""Products of a buffer with itself: each side reads a buffer of its own, which can be packed.

C[i, j] += A[i, k] * A[k, j]
-->
A_again[k, j] = A[k, j]
C[i, j] += A[i, k] * A_again[k, j]
"""

from __future__ import annotations

from tilewright.ir import Block, Buffer, Function, Load, seq
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import with_buffers
from tilewright.schedule.rules.analysis import Access, as_contraction, is_step
from tilewright.schedule.rules.widen import conversion
from tilewright.schedule.writing import change_accesses


def part_operands(function: Function) -> Function:
    """The function with a copy of the right operand wherever it is the left one too."""
    for name in Tree(function).blocks:
        tree = Tree(function)
        block = tree.blocks[name]
        found = as_contraction(block)
        if found is None or is_step(block) or not tree.loops_above(block):
            continue
        if found.a.buffer is found.b.buffer and found.a.indices != found.b.indices:
            function = _parted(tree, block, found.b)
    return function


def _parted(tree: Tree, block: Block, access: Access) -> Function:
    old = access.buffer
    new = Buffer(f"{old.name}_again", old.dtype, old.shape)

    def redirected(load: Load) -> Load | None:
        return Load(new, load.indices, load.mask) if load.indices == access.indices else None

    outermost = tree.loops_above(block)[0]
    product = tree.rebuilt(outermost, block, change_accesses(block, [old], redirected))
    parts = seq(conversion(tree, old, new), product)
    return with_buffers(tree.replace(outermost, parts), new)
