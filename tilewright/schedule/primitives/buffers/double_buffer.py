"""double_buffer(block, loop)"""

from __future__ import annotations

from tilewright.ir import Block, Buffer, For
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.legality import loop_is_serial
from tilewright.schedule.versions import buffer_can_have_versions, with_versions


def double_buffer(tree: Tree, block: Block, loop: For) -> Edit:
    """Let iterations of a loop alternate between two halves of a buffer, so that they can overlap.

    for i:                         -->      for i:
        T[…] = A[i, …]                          T[i % 2, …] = A[i, …]
        B[i, …] = T[…]                          B[i, …] = T[i % 2, …]
    """
    check(tree, block, loop)
    function = tree.function
    for buffer in buffers_touched(block)[1]:
        after = Tree(function)
        function = with_versions(after, after.loops[loop.var], buffer, 2)
    return Edit(function)


def check(tree: Tree, block: Block, loop: For) -> None:
    what = f"cannot double-buffer block {block.name} in loop {loop.var.name}"
    require(tree, what, loop_is_serial(loop), _is_inside(tree, block, loop))
    for buffer in buffers_touched(block)[1]:
        require(
            tree,
            what,
            buffer_can_have_versions(tree, loop, buffer),
            _has_a_reader(tree, block, buffer),
        )


def _is_inside(tree: Tree, block: Block, loop: For) -> Fault | None:
    if loop in tree.loops_above(block):
        return None
    return Fault(
        f"block {block.name} is not in loop {loop.var.name}", "compute_at can bring it there", block
    )


def _has_a_reader(tree: Tree, block: Block, buffer: Buffer) -> Fault | None:
    if any(reader is not block for reader in tree.readers(buffer)):
        return None
    return Fault(f"nobody reads {buffer.name}", "", block)
