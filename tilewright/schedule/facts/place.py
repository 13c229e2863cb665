"""Program order: which statement comes first, and the common ancestors of two statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilewright.ir import Alloc, Block, For, Seq, Stmt, Var, child_stmts
from tilewright.schedule.cursor import Tree


class CommonAncestor(NamedTuple):
    """The innermost statement around two others, and its children that contain each of them."""

    around: Stmt
    first: Stmt
    second: Stmt


def common_ancestor(tree: Tree, a: Stmt, b: Stmt) -> CommonAncestor | None:
    """The lowest common ancestor of `a` and `b`; None if one is inside the other."""
    above_a, above_b = tree.path(a), tree.path(b)
    for number, (x, y) in enumerate(zip(above_a, above_b, strict=False)):
        if x is not y:
            return CommonAncestor(above_a[number - 1], x, y)
    return None


def comes_before(tree: Tree, a: Stmt, b: Stmt) -> bool:
    """Whether `a` ends before `b` begins in program order."""
    met = common_ancestor(tree, a, b)
    if met is None:
        return False
    children = child_stmts(met.around)
    return children.index(met.first) < children.index(met.second)


def shared_loops(tree: Tree, a: Stmt, b: Stmt) -> list[For]:
    """The loops around both, outermost first."""
    others = set(tree.ancestors(b))
    return [s for s in reversed(list(tree.ancestors(a))) if isinstance(s, For) and s in others]


def outermost(tree: Tree, blocks: Iterable[Block]) -> list[Block]:
    """The outermost blocks around these blocks (or they themselves), each once."""
    found: dict[Block, None] = {}
    for block in blocks:
        around = [s for s in tree.path(block) if isinstance(s, Block)]
        found.setdefault(around[0])
    return list(found)


def part_of(tree: Tree, loop: For, inner: Stmt) -> Stmt:
    """The statement in the body of `loop` that is or contains `inner`."""
    path = tree.path(inner)
    below = path[path.index(loop) + 1 :]
    return next((s for s in below if not isinstance(s, Seq | Alloc)), inner)


def outermost_statement(tree: Tree, stmt: Stmt) -> Stmt:
    """The statement directly in the function's body that is or contains `stmt`."""
    return next(s for s in tree.path(stmt) if not isinstance(s, Alloc | Seq))


def loops_between(tree: Tree, outer: Stmt | None, inner: Stmt) -> list[For]:
    """The loops around `inner` and inside `outer` (None: the function), outermost first."""
    found: list[For] = []
    for above in tree.ancestors(inner):
        if above is outer:
            break
        if isinstance(above, For):
            found.append(above)
    return found[::-1]


def variables(loops: Sequence[For]) -> set[Var]:
    return {loop.var for loop in loops}
