"""fuse(*loops)"""

from __future__ import annotations

from tilewright.arith import simplify
from tilewright.ir import Expr, For, Var, const
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, loop_name, product, rebind
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.legality import (
    extents_do_not_depend_on,
    loops_are_directly_nested,
    names,
)
from tilewright.schedule.handles import Loop


def fuse(tree: Tree, *loops: For) -> Edit:
    """Make one loop of perfectly nested loops.

    for i in 4:                  -->      for i_j in 32:
        for j in 8: B[i, j]                   B[i_j // 8, i_j % 8]
    """
    check(tree, *loops)
    outer, inner = loops[0], loops[-1]
    var = Var(loop_name(*(loop.var.name for loop in loops)), outer.var.dtype)
    extent = product(loop.extent for loop in loops)
    ranges = tree.ranges_at(outer).with_extent(var, extent)
    body = rebind(inner.body, _shares(var, loops), ranges)
    fused = For(var, extent, outer.kind, body, outer.axis, dict(outer.annotations), outer.span)
    return Edit(tree.replace(outer, fused), (Loop(var),))


def check(tree: Tree, *loops: For) -> None:
    what = f"cannot fuse {names(loops) or 'no loops'}"
    require(tree, what, _there_are_two(loops))
    require(
        tree,
        what,
        loops_are_directly_nested(loops),
        loops_are_alike(loops),
        extents_do_not_depend_on(loops[1:], on=loops),
    )


def loops_are_alike(loops: tuple[For, ...]) -> Fault | None:
    first = loops[0]
    for loop in loops:
        if loop.kind == "thread":
            return Fault(f"loop {loop.var.name} is bound to {loop.axis}", "fuse first", loop)
        if loop.kind != first.kind:
            reason = f"loop {first.var.name} is {first.kind}, loop {loop.var.name} is {loop.kind}"
            return Fault(reason, "fuse loops of one kind", loop)
        if dict(loop.annotations) != dict(first.annotations):
            return Fault("their annotations differ", "unannotate them first", loop)
    return None


def _there_are_two(loops: tuple[For, ...]) -> Fault | None:
    return Fault("there is nothing to fuse", "name two loops or more") if len(loops) < 2 else None


def _shares(var: Var, loops: tuple[For, ...]) -> dict[Var, Expr]:
    """The value of each loop's variable in terms of the fused one."""
    values: dict[Var, Expr] = {}
    below: Expr = product(())
    # The outermost loop needs no modulo, loops of one iteration not counted.
    first = next((loop for loop in loops if loop.extent is not const(1)), loops[0])
    for loop in reversed(loops):
        share = simplify(var // below)
        values[loop.var] = share if loop is first else share % loop.extent
        below = product((below, loop.extent))
    return values
