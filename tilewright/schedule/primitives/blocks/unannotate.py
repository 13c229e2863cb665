"""unannotate(target, key)"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Block, For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.primitives.blocks.annotate import name_of
from tilewright.support.errors import nearest


def unannotate(tree: Tree, target: For | Block, key: str) -> Edit:
    """Remove an annotation from a loop or block.

    for i in range(8, note={"key": 1}): …      -->      for i in range(8): …
    """
    check(tree, target, key)
    kept = {k: v for k, v in target.annotations.items() if k != key}
    return Edit(tree.replace(target, replace(target, annotations=kept)))


def check(tree: Tree, target: For | Block, key: str) -> None:
    missing = Fault("it carries no such annotation", nearest(key, target.annotations), target)
    what = f"cannot take annotation {key!r} off {name_of(target)}"
    require(tree, what, None if key in target.annotations else missing)
