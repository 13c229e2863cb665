"""remove_empty()"""

from __future__ import annotations

from tilewright.ir import Block, Const, For, Seq, Stmt, map_function, seq
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit


def remove_empty(tree: Tree) -> Edit:
    """Remove blocks that never run, and the loops around them.

    for i in range(0): for j in range(8): block T(…)      -->      for i in range(4): block C(…)
    for i in range(4): block C(…)

    A reduction over nothing stays: it stores its initial value.
    """
    check(tree)
    return Edit(map_function(tree.function, _without_empty))


def check(tree: Tree) -> None:
    """Always legal."""
    del tree


def _without_empty(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, Block):
        return seq() if never_runs(stmt) else None
    if isinstance(stmt, For):
        return stmt.body if isinstance(stmt.body, Seq) and not stmt.body.statements else None
    if isinstance(stmt, Seq) and any(isinstance(s, Seq) for s in stmt.statements):
        return seq(*stmt.statements)
    return None


def never_runs(block: Block) -> bool:
    extents = [it.extent for it in block.iters if it.kind != "reduce"]
    return any(isinstance(extent, Const) and extent.value == 0 for extent in extents)
