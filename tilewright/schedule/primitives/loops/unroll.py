"""unroll(loop)"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import require
from tilewright.schedule.facts.legality import extent_is_constant, loop_is_serial


def unroll(tree: Tree, loop: For) -> Edit:
    """Unroll a loop: its iterations are written out one after the other.

    for i in range(4): …      -->      for i in unrolled(4): …
    """
    check(tree, loop)
    return Edit(tree.replace(loop, replace(loop, kind="unrolled")))


def check(tree: Tree, loop: For) -> None:
    what = f"cannot unroll loop {loop.var.name}"
    require(tree, what, loop_is_serial(loop), extent_is_constant(loop))
