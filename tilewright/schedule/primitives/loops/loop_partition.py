"""loop_partition(loop, *points)"""

from __future__ import annotations

from itertools import pairwise

from tilewright.arith import simplify
from tilewright.ir import (
    Block,
    Const,
    Expr,
    For,
    Stmt,
    Var,
    const,
    free_vars,
    map_stmt,
    maximum,
    minimum,
    seq,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_copy, loop_name, rebind
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.dependence import loop_reduces_and_does_not
from tilewright.schedule.facts.legality import loop_is_plain
from tilewright.schedule.facts.reduction import without_init
from tilewright.schedule.handles import Loop


def loop_partition(tree: Tree, loop: For, *points: int) -> Edit:
    """Cut the range of a loop at `points`: a loop for each part, run one after the other.

    Predicates that always hold in a part are dropped, so that only the part at the edge checks
    them. Later parts get copies of the blocks: C, C_1, …

        for i in 10: B[i]      -->      for i_0 in 8: B[i_0]
                                        for i_1 in 2: B[i_1 + 8]
    """
    check(tree, loop, *points)
    taken, parts = set(tree.blocks), list[For]()
    for number, (start, end) in enumerate(_parts(loop, points)):
        part = part_of(tree, loop, number, start, end, taken)
        taken |= {block.name for block in Tree(tree.function.with_body(part)).blocks.values()}
        parts.append(part)
    return Edit(tree.replace(loop, seq(*parts)), tuple(Loop(part.var) for part in parts))


def check(tree: Tree, loop: For, *points: int) -> None:
    what = f"cannot partition loop {loop.var.name} at {', '.join(map(str, points)) or 'no point'}"
    require(tree, what, loop_is_plain(loop), _points_ascend(loop, points))
    require(tree, what, reductions_begin_in_one_part(tree, loop))


def _points_ascend(loop: For, points: tuple[int, ...]) -> Fault | None:
    remedy = f"give ascending points inside 1 … {loop.extent} - 1"
    if not points:
        return Fault("there is nowhere to cut", remedy, loop)
    for before, point in pairwise((0, *points)):
        if point <= before:
            return Fault(f"{point} does not follow {before}", remedy, loop)
    if isinstance(loop.extent, Const) and loop.extent.value <= points[-1]:
        return Fault(f"the loop ends at {loop.extent}", remedy, loop)
    return None


def _parts(loop: For, points: tuple[int, ...]) -> list[tuple[Expr, Expr]]:
    """Start and extent of each part; points beyond a symbolic extent make later parts empty."""
    ends = [minimum(const(point), loop.extent) for point in points]
    starts = [const(point) for point in points]
    later = zip(starts, [*ends[1:], loop.extent], strict=True)
    return [(const(0), ends[0]), *((s, maximum(e - s, 0)) for s, e in later)]


def part_of(tree: Tree, loop: For, number: int, start: Expr, extent: Expr, taken: set[str]) -> For:
    """The loop over `extent` iterations from `start` on; in all but the first part, blocks are
    copies with names not in `taken`."""
    ranges = tree.ranges_at(loop)
    extent = simplify(extent, ranges)
    var = Var(loop_name(loop.var.name, str(number)), loop.var.dtype)
    ranges = ranges.with_extent(var, extent)
    body = _later_part(loop, taken) if number else loop.body
    body = rebind(body, {loop.var: simplify(var + start)}, ranges)
    return For(var, extent, "serial", body, span=loop.span)


def _later_part(loop: For, taken: set[str]) -> Stmt:
    """A copy of the body, without the init of reductions that started in an earlier part."""

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Block) or stmt.init is None:
            return None
        pairs = zip(stmt.iters, stmt.bindings, strict=True)
        goes_on = any(it.kind == "reduce" and loop.var in free_vars(v) for it, v in pairs)
        return without_init(stmt) if goes_on else None

    return map_stmt(fresh_copy(loop.body, taken), on_stmt)


def reductions_begin_in_one_part(tree: Tree, loop: For) -> Fault | None:
    for block in tree.blocks_in(loop):
        if block.init is not None and loop_reduces_and_does_not(block, loop):
            return Fault(
                f"it feeds both reduce and spatial iterators of block {block.name}, so that some "
                "reductions would begin in one part and end in another",
                "decompose the reduction first",
                loop,
            )
    return None
