"""blockize(loop)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.arith import Ranges, bounds, conjuncts, divisor, linear, simplify, symbolic_bounds
from tilewright.ir import (
    Binary,
    Block,
    Const,
    Expr,
    For,
    Iter,
    Stmt,
    Var,
    all_of,
    const,
    free_vars,
    is_const,
    make_block,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_name
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.dependence import ranges_below
from tilewright.schedule.facts.legality import one_block_stands_alone
from tilewright.schedule.facts.reduction import init_nest, without_init
from tilewright.schedule.handles import BlockRef


def blockize(tree: Tree, loop: For) -> Edit:
    """Make one block of a loop and its body: a tile that moves as a whole.

    for i_0:                                -->      for i_0:
        for i_1 in 4:                                    block C_o (vo = i_0):
            block C (vi = i_0 * 4 + i_1): …                  for i_1 in 4:
                                                                 block C (vi = vo * 4 + i_1): …
    """
    check(tree, loop)
    block = tree.blocks_in(loop)[0]
    parts = _parts(tree, loop, block)
    assert not isinstance(parts, Fault)
    name = fresh_name(f"{block.name}_o", tree.blocks)
    outer = _outer_block(tree, loop, block, parts, name)
    return Edit(tree.replace(loop, outer), (BlockRef(name),))


def check(tree: Tree, loop: For) -> None:
    what = f"cannot make a block of loop {loop.var.name}"
    blocks = tree.blocks_in(loop)
    require(tree, what, _there_is_one(loop, blocks))
    require(tree, what, one_block_stands_alone(loop, blocks[0]))
    parts = _parts(tree, loop, blocks[0])
    if isinstance(parts, Fault):
        require(tree, what, parts)
    require(tree, what, _conditions_are_separate(tree, loop, blocks[0]))


def _there_is_one(loop: For, blocks: Sequence[Block]) -> Fault | None:
    if len(blocks) == 1:
        return None
    return Fault(f"it holds {len(blocks)} blocks", "choose a loop around one block", loop)


def _conditions_are_separate(tree: Tree, loop: For, block: Block) -> Fault | None:
    """No condition depends on loops both inside and outside the new block."""
    loops = tree.loops_above(block)
    at = loops.index(loop)
    outer, inner = {f.var for f in loops[:at]}, {f.var for f in loops[at:]}
    for condition in _conditions(tree, loop, block):
        used = free_vars(condition)
        if used & outer and used & inner:
            return Fault(
                f"the predicate {condition} depends on loops inside and outside",
                "split by factors that divide the extents, or pad first",
                block,
            )
    return None


def _conditions(tree: Tree, loop: For, block: Block) -> list[Expr]:
    """The conditions of the block; one that is the same for a whole tile becomes the tile's."""
    ranges = ranges_below(tree, loop)
    loops = tree.loops_above(block)
    inner = {f.var for f in loops[loops.index(loop) :]}
    return [_of_whole_tile(c, inner, ranges) for c in conjuncts(block.predicate)]


def _of_whole_tile(condition: Expr, inner: set[Var], ranges: Ranges) -> Expr:
    """outer * 16 + inner < 48  -->  outer * 16 < 48, where 0 <= inner < 16"""
    if not isinstance(condition, Binary) or condition.op != "lt":
        return condition
    if not condition.a.dtype.is_integer or not free_vars(condition) & inner:
        return condition
    within, beyond = linear(condition.b - condition.a).split(
        lambda atom, _: bool(free_vars(atom) & inner)
    )
    limits = bounds(within.expr(), ranges)
    if limits.low is None or limits.high != 0 or divisor(beyond.expr(), ranges) <= -limits.low:
        return condition
    return simplify(const(0) < beyond.expr(), ranges)


# ---- taking bindings apart ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """An iterator in terms of the new block's `var`: `var` * size + inner; without a var, inner."""

    it: Iter
    var: Var | None
    size: Expr
    outer: Expr
    inner: Expr

    @property
    def value(self) -> Expr:
        return self.inner if self.var is None else simplify(self.var * self.size + self.inner)

    @property
    def extent(self) -> Expr:
        return simplify((self.it.extent + (self.size - 1)) // self.size)


def _parts(tree: Tree, loop: For, block: Block) -> list[_Part] | Fault:
    ranges = ranges_below(tree, loop)
    loops = tree.loops_above(block)
    inner = {f.var for f in loops[loops.index(loop) :]}
    found: list[_Part] = []
    for it, value in zip(block.iters, block.bindings, strict=True):
        part = _part(it, value, inner, ranges)
        if isinstance(part, str):
            return Fault(
                f"iterator {it.var.name} = {value} of block {block.name} {part}",
                "split the loops so that each iterator is outer * size + inner",
                block,
            )
        found.append(part)
    return found


def _part(it: Iter, value: Expr, inner: set[Var], ranges: Ranges) -> _Part | str:
    """The binding as outer * size + inner, or the reason why it is not of that form."""
    total = linear(simplify(value, ranges))
    within, beyond = total.split(lambda atom, _: bool(free_vars(atom) & inner))
    if any(not free_vars(atom) <= inner for atom in within.terms if _has_loop(atom, ranges)):
        return "mixes loops inside and outside"
    ends = symbolic_bounds(within.expr(), ranges, inner) if within.terms else (const(0), const(0))
    if ends is None or not is_const(simplify(ends[0], ranges), 0):
        return "does not start at 0 inside"
    size = simplify(ends[1] + 1, ranges)
    outer = beyond.expr()
    if is_const(outer, 0):
        return _Part(it, None, size, outer, within.expr())
    if not isinstance(size, Const) or divisor(outer, ranges) % int(size.value):
        return f"is not a multiple of {size} outside"
    var = Var(f"{it.var.name}o", it.var.dtype)
    return _Part(it, var, size, simplify(outer // size, ranges), within.expr())


def _has_loop(atom: Expr, ranges: Ranges) -> bool:
    return bool(free_vars(atom) & ranges.variables.keys())


# ---- the edit -----------------------------------------------------------------------------------


def _outer_block(tree: Tree, loop: For, block: Block, parts: Sequence[_Part], name: str) -> Stmt:
    loops = tree.loops_above(block)
    inner_loops = loops[loops.index(loop) :]
    variables = {f.var for f in inner_loops}
    conditions = _conditions(tree, loop, block)
    within = [c for c in conditions if free_vars(c) & variables]
    beyond = [c for c in conditions if not free_vars(c) & variables]
    tile = replace(block, bindings=tuple(p.value for p in parts), predicate=all_of(*within))
    kept = [p for p in parts if p.var is not None]
    init: Stmt | None = None
    if block.init is not None and any(p.it.kind == "reduce" for p in kept):
        init = _init(tree, tile, inner_loops, kept)
        tile = without_init(tile)
    return make_block(
        name,
        [Iter(p.var, p.extent, p.it.kind) for p in kept if p.var is not None],
        [p.outer for p in kept],
        tree.rebuilt(loop, block, tile),
        predicate=all_of(*beyond),
        init=init,
        span=block.span,
    )


def _init(tree: Tree, tile: Block, loops: Sequence[For], parts: Sequence[_Part]) -> Stmt:
    ranges = Ranges.for_function(tree.function)
    for part in parts:
        assert part.var is not None
        ranges = ranges.with_extent(part.var, part.extent)
    return init_nest(tile, loops, ranges, fresh_name(f"{tile.name}_init", tree.blocks))
