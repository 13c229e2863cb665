"""add_unit_loop(block)"""

from __future__ import annotations

from tilewright.ir import Block, For, Var, const
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import require
from tilewright.schedule.facts.block_facts import block_is_no_part_of_another
from tilewright.schedule.handles import Loop


def add_unit_loop(tree: Tree, block: Block) -> Edit:
    """Put a loop of one iteration around a block, so that a block without loops can be bound.

    block S: …      -->      for u in range(1): block S: …
    """
    check(tree, block)
    var = Var(f"{block.name}_one")
    loop = For(var, const(1), "serial", block, span=block.span)
    return Edit(tree.replace(block, loop), (Loop(var),))


def check(tree: Tree, block: Block) -> None:
    what = f"cannot put a loop around block {block.name}"
    require(tree, what, block_is_no_part_of_another(tree, block))
