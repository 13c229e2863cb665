"""Whether iterations of a loop can be reordered or run in parallel."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.arith import Ranges, prove
from tilewright.ir import (
    TRUE,
    Assert,
    Block,
    Buffer,
    Evaluate,
    For,
    Range,
    Stmt,
    Store,
    Var,
    While,
    child_stmts,
    const,
    free_vars,
    is_const,
)
from tilewright.schedule.cursor import Tree, with_loops_in
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.access import (
    Digit,
    RegionAccess,
    accesses_in,
    are_complete,
    determined_digits,
    inner_vars,
    writes_are_distinct,
)
from tilewright.schedule.facts.block_facts import block_is_repeatable
from tilewright.schedule.facts.coverage import each_read_is_covered, is_private
from tilewright.schedule.facts.decoding import bindings_determine
from tilewright.schedule.facts.legality import names

_BARE = (Store, Evaluate, Assert, While)


# ---- one loop, side by side ---------------------------------------------------------------------


def iterations_are_independent(tree: Tree, loop: For) -> Fault | None:
    """Iterations of `loop` may run in any order or in parallel."""
    if is_const(loop.extent, 1):
        return None
    return (
        everything_is_in_blocks(loop)
        or loop_feeds_spatial_iterators_only(tree, loop)
        or _iterations_share_nothing(tree, loop)
    )


def everything_is_in_blocks(loop: For) -> Fault | None:
    """Everything with an effect is in a block, which declares what it reads and writes."""
    pending: list[Stmt] = [loop.body]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, _BARE):
            return Fault(
                f"loop {loop.var.name} holds statements that are in no block",
                "put them into a block",
                stmt,
            )
        if not isinstance(stmt, Block):
            pending.extend(child_stmts(stmt))
    return None


def loop_feeds_spatial_iterators_only(tree: Tree, loop: For) -> Fault | None:
    """No block below reduces or runs in order along this loop."""
    for block in tree.blocks_in(loop):
        for it, value in zip(block.iters, block.bindings, strict=True):
            if it.kind != "spatial" and loop.var in free_vars(value):
                return Fault(
                    f"loop {loop.var.name} feeds the {it.kind} iterator {it.var.name} of block "
                    f"{block.name}",
                    "choose a loop that feeds spatial iterators only"
                    + (", or rfactor this one first" if it.kind == "reduce" else ""),
                    loop,
                )
    return None


def _iterations_share_nothing(tree: Tree, loop: For) -> Fault | None:
    ranges = ranges_below(tree, loop)
    free = inner_vars(loop)
    accesses = accesses_in(tree, loop)
    for buffer in dict.fromkeys(a.buffer for a in accesses if a.is_write):
        touching = [a for a in accesses if a.buffer is buffer]
        if _all_determine(_conflicting(touching, loop.var, free, ranges), loop.var, free, ranges):
            continue
        if is_private(tree, loop, buffer) and each_read_is_covered(tree, loop, touching, ranges):
            continue
        block = next(a.block for a in touching if a.is_write)
        if len({a.block for a in touching}) == 1 and _runs_other_instances(block, loop, ranges):
            continue
        return Fault(
            f"iterations of loop {loop.var.name} may touch the same elements of {buffer.name}",
            f"choose a loop whose iterations write different elements of {buffer.name}",
            block,
        )
    return None


def _runs_other_instances(block: Block, loop: For, ranges: Ranges) -> bool:
    """Whether iterations run different instances of a block, which write different elements and
    read none that other instances write."""
    return (
        block_is_repeatable(block) is None
        and _reads_own_elements(block)
        and writes_are_distinct(block)
        and bindings_determine(block, loop.var, inner_vars(loop), ranges)
    )


def _reads_own_elements(block: Block) -> bool:
    """Whether no instance of a block reads elements that other instances write."""
    written = {region.buffer: region.ranges for region in block.writes}
    own = (r for r in block.reads if r.buffer in written)
    return all(region.ranges == written[region.buffer] for region in own)


# ---- two loops, as one --------------------------------------------------------------------------


def parts_meet_in_iterations(
    tree: Tree, loop: For, first: Collection[str], but: Collection[Buffer] = ()
) -> Fault | None:
    """Elements that both the blocks named `first` and the others below `loop` access are accessed
    in the same iteration: so one part need not wait for all iterations of the other. (Buffers in
    `but` are known to be safe.)"""
    if is_const(loop.extent, 1):
        return None
    ranges, free, accesses = ranges_below(tree, loop), inner_vars(loop), accesses_in(tree, loop)
    for buffer in dict.fromkeys(a.buffer for a in accesses if a.is_write):
        touching = [a for a in accesses if a.buffer is buffer]
        if buffer in but or len({a.block.name in first for a in touching}) == 1:
            continue
        conflicting = _conflicting(touching, loop.var, free, ranges)
        if not _all_determine(conflicting, loop.var, free, ranges):
            return Fault(
                f"{buffer.name} may be handed from one iteration of loop {loop.var.name} to "
                "another",
                "only loops within whose iterations it is both written and read can be merged",
                next(a.block for a in touching if a.is_write),
            )
    return None


# ---- several loops, changing places -------------------------------------------------------------


def order_does_not_matter(tree: Tree, chain: Sequence[For], order: Sequence[For]) -> Fault | None:
    """The loops of a perfect nest may be put in a new order."""
    moved = [loop for loop, place in zip(chain, order, strict=True) if loop is not place]
    if not moved:
        return None
    return (
        everything_is_in_blocks(chain[0])
        or _ordered_loops_stay(tree, chain, order)
        or _reductions_begin_first(tree, chain, order)
        or _reductions_stay_whole(tree, chain, moved)
        or _flow_stays_in_iterations(tree, chain, order)
    )


def _ordered_loops_stay(tree: Tree, chain: Sequence[For], order: Sequence[For]) -> Fault | None:
    """Loops that run in order keep their places, except relative to loops that carry no value."""
    for block in tree.blocks_in(chain[0]):
        for it, value in zip(block.iters, block.bindings, strict=True):
            if it.kind != "ordered":
                continue
            for loop in (one for one in chain if one.var in free_vars(value)):
                if not all(_separates(tree, chain, by) for by in _passed(loop, chain, order)):
                    return Fault(
                        f"loop {loop.var.name} feeds the ordered iterator {it.var.name} of block "
                        f"{block.name}",
                        "keep its place among the other loops, or move it past loops whose "
                        "iterations touch different elements",
                        loop,
                    )
    return None


def _passed(loop: For, chain: Sequence[For], order: Sequence[For]) -> set[For]:
    """The loops that change sides relative to `loop` in the new order."""
    before, after = list(chain), list(order)
    return {*before[: before.index(loop)]} ^ {*after[: after.index(loop)]}


def _separates(tree: Tree, chain: Sequence[For], loop: For) -> bool:
    """Whether iterations of `loop` access different elements of everything written in the chain,
    whatever the values of the other loops."""
    ranges, accesses = ranges_below(tree, chain[0]), accesses_in(tree, chain[0])
    free = {chain[0].var, *inner_vars(chain[0])}
    written = dict.fromkeys(a.buffer for a in accesses if a.is_write)
    return all(
        _all_determine([a for a in accesses if a.buffer is buffer], loop.var, free, ranges)
        for buffer in written
    )


def _reductions_begin_first(tree: Tree, chain: Sequence[For], order: Sequence[For]) -> Fault | None:
    """Of an element's instances, the one where all reduce iterators are 0 still comes first.

    That holds for loops that either reduce or not; fused loops that do both keep their order.
    """
    for block in tree.blocks_in(chain[0]):
        if block.init is None:
            continue
        mixed = [loop for loop in chain if loop_reduces_and_does_not(block, loop)]
        if mixed != [loop for loop in order if loop in mixed]:
            return Fault(
                f"loops {names(mixed)} feed both reduce and spatial iterators of block "
                f"{block.name}, so that its reduction would not begin with its init",
                "decompose the reduction first, or keep the order of these loops",
                mixed[0],
            )
    return None


def loop_reduces_and_does_not(block: Block, loop: For) -> bool:
    """Whether a loop determines reduce iterators of a block, and others as well."""
    pairs = zip(block.iters, block.bindings, strict=True)
    kinds = {it.kind for it, value in pairs if loop.var in free_vars(value)}
    return "reduce" in kinds and len(kinds) > 1


def _reductions_stay_whole(tree: Tree, chain: Sequence[For], moved: Sequence[For]) -> Fault | None:
    """Every instance of a reduction runs exactly once, with its init before all others."""
    ranges = ranges_below(tree, chain[0])
    free = {chain[0].var, *inner_vars(chain[0])}
    for block in tree.blocks_in(chain[0]):
        if block.init is None:
            continue
        instance = [Range(value, const(1)) for value in block.bindings]
        for loop in moved:
            if is_const(loop.extent, 1) or are_complete(
                determined_digits(instance, loop.var, free, ranges)
            ):
                continue
            return Fault(
                f"iterations of loop {loop.var.name} run the same instances of block {block.name}, "
                "so its reduction would start anew in the middle",
                "decompose the reduction first, or leave this loop in its place",
                loop,
            )
    return None


def _flow_stays_in_iterations(
    tree: Tree, chain: Sequence[For], order: Sequence[For]
) -> Fault | None:
    """What one block writes for another is read in the same iteration of the loops that move.

    Loops that carry values keep their relative order; other loops may move past them.
    """
    moved = [loop for loop, place in zip(chain, order, strict=True) if loop is not place]
    ranges = ranges_below(tree, chain[0])
    free = {chain[0].var, *inner_vars(chain[0])}
    accesses = accesses_in(tree, chain[0])
    for buffer in dict.fromkeys(a.buffer for a in accesses if a.is_write):
        touching = [a for a in accesses if a.buffer is buffer]
        if len({a.block for a in touching}) == 1:
            continue
        loose = [v for v in moved if not _all_determine(touching, v.var, free, ranges)]
        if loose and not each_read_is_covered(tree, chain[-1], touching, ranges):
            tied = [loop for loop in chain if not _separates(tree, chain, loop)]
            if tied == [loop for loop in order if loop in tied]:
                return None
            return Fault(
                f"loop {loose[0].var.name} hands {buffer.name} from one iteration to another",
                "only loops within whose iterations it is both written and read can change places",
                loose[0],
            )
    return None


# ---- shared by both -----------------------------------------------------------------------------


def ranges_below(tree: Tree, loop: For) -> Ranges:
    """What is known inside `loop`: it and the loops below it have their ranges."""
    return with_loops_in(loop, tree.ranges_at(loop))


def _conflicting(
    accesses: Sequence[RegionAccess], var: Var, free: set[Var], ranges: Ranges
) -> Sequence[RegionAccess]:
    """The accesses without reads of what none of them writes, such as a previous step's."""
    writes = [a for a in accesses if a.is_write]
    running = free | {var}

    def is_disjoint(read: RegionAccess) -> bool:
        return all(_are_disjoint(read, write, running, ranges) for write in writes)

    return [a for a in accesses if a.is_write or not is_disjoint(a)]


def _are_disjoint(a: RegionAccess, b: RegionAccess, running: set[Var], ranges: Ranges) -> bool:
    """Whether two boxes are disjoint in a dimension, whatever the running variables in each."""
    for mine, other in zip(a.ranges, b.ranges, strict=True):
        ends = mine.start + mine.extent, other.start + other.extent
        if not running.isdisjoint(free_vars(ends[0]) | free_vars(ends[1])):
            continue
        if prove(ends[0] <= other.start, ranges) or prove(ends[1] <= mine.start, ranges):
            return True
    return False


def _all_determine(
    accesses: Sequence[RegionAccess], var: Var, free: set[Var], ranges: Ranges
) -> bool:
    """Whether all accesses determine `var` by one rule: iterations access different elements."""
    first, *rest = (_digits_of_access(a, var, free, ranges) for a in accesses)
    return are_complete(first.intersection(*rest))


def _digits_of_access(
    access: RegionAccess, var: Var, free: set[Var], ranges: Ranges
) -> frozenset[Digit]:
    """The digits of `var` that an access determines, with and without the block's predicate."""
    digits, predicate = determined_digits(access.ranges, var, free, ranges), access.block.predicate
    if predicate is TRUE:
        return digits
    return digits | determined_digits(access.ranges, var, free, ranges.assuming(predicate))
