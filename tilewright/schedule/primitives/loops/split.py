"""split(loop, *factors)"""

from __future__ import annotations

from tilewright.arith import prove, simplify
from tilewright.ir import Const, Expr, For, Var, const
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, guard, loop_name, nest, product, rebind
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.legality import loop_is_plain
from tilewright.schedule.handles import Loop

Factors = tuple[int | None, ...]


def split(tree: Tree, loop: For, *factors: int | None) -> Edit:
    """Split a loop into nested ones with the extents `factors`, outermost first.

    One factor may be None: it is inferred. A single factor is the inner one. Where the factors do
    not divide the extent, blocks get a predicate.

        for i in 10: B[i]      -->      for i_0 in 3:
                                            for i_1 in 4:
                                                B[i_0 * 4 + i_1] if i_0 * 4 + i_1 < 10
    """
    factors = _completed(factors)
    check(tree, loop, *factors)
    extents = _extents(loop, factors)
    loops = [_part(loop, i, extent) for i, extent in enumerate(extents)]
    ranges = tree.ranges_at(loop)
    for part in loops:
        ranges = ranges.with_extent(part.var, part.extent)
    value = simplify(_index(loops), ranges)
    body = rebind(loop.body, {loop.var: value}, ranges)
    if not prove(value < loop.extent, ranges):
        body = guard(body, value < loop.extent, ranges)
    function = tree.replace(loop, nest(loops, body))
    return Edit(function, tuple(Loop(part.var) for part in loops))


def check(tree: Tree, loop: For, *factors: int | None) -> None:
    factors = _completed(factors)
    what = f"cannot split loop {loop.var.name} by {', '.join(map(str, factors))}"
    require(
        tree,
        what,
        loop_is_plain(loop),
        _factors_are_sound(loop, factors),
        _factors_cover(tree, loop, factors),
    )


def _completed(factors: Factors) -> Factors:
    return (None, *factors) if len(factors) == 1 else factors


def _factors_are_sound(loop: For, factors: Factors) -> Fault | None:
    remedy = "give whole numbers from 1 up, and None for the one to infer"
    if len(factors) < 2:
        return Fault("there is no factor", remedy, loop)
    if factors.count(None) > 1:
        return Fault("more than one factor is None", remedy, loop)
    for factor in factors:
        if factor is not None and (isinstance(factor, bool) or factor < 1):
            return Fault(f"{factor} is no factor", remedy, loop)
    return None


def _factors_cover(tree: Tree, loop: For, factors: Factors) -> Fault | None:
    if None in factors:
        return None
    covered = product(f for f in factors if f is not None)
    if prove(covered >= loop.extent, tree.ranges_at(loop)):
        return None
    return Fault(
        f"together they give {covered} iterations, the loop has {loop.extent}",
        "make one factor None, so that it is inferred",
        loop,
    )


def _extents(loop: For, factors: Factors) -> list[Expr]:
    known = product(f for f in factors if f is not None)
    return [_inferred(loop.extent, known) if f is None else const(int(f)) for f in factors]


def _inferred(extent: Expr, known: Expr) -> Expr:
    assert isinstance(known, Const)
    return simplify((extent + (known.value - 1)) // known)


def _part(loop: For, position: int, extent: Expr) -> For:
    var = Var(loop_name(loop.var.name, str(position)), loop.var.dtype)
    return For(var, extent, "serial", loop.body, span=loop.span)


def _index(loops: list[For]) -> Expr:
    index: Expr = loops[0].var
    for loop in loops[1:]:
        index = index * loop.extent + loop.var
    return index
