"""tile(i, j, i_factor, j_factor)"""

from __future__ import annotations

from tilewright.ir import For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.handles import Loop
from tilewright.schedule.primitives.loops.reorder import reorder
from tilewright.schedule.primitives.loops.split import split


def tile(tree: Tree, i: For, j: For, i_factor: int, j_factor: int) -> Edit:
    """Cut two loops of one nest into tiles: two splits and a reorder.

    for i:               -->      for i_0:
        for j: …                      for j_0:
                                          for i_1 in i_factor:
                                              for j_1 in j_factor: …
    """
    rows = split(tree, i, i_factor)
    tree = Tree(rows.function)
    columns = split(tree, tree.loops[j.var], j_factor)
    tree = Tree(columns.function)
    (i0, i1), (j0, j1) = rows.results, columns.results
    order = [i0, j0, i1, j1]
    edit = reorder(tree, *(tree.loops[loop.var] for loop in order if isinstance(loop, Loop)))
    return Edit(edit.function, tuple(order))


def check(tree: Tree, i: For, j: For, i_factor: int, j_factor: int) -> None:
    tile(tree, i, j, i_factor, j_factor)
