"""reverse_compute_at(block, loop)"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.arith import Ranges, conjuncts, prove, simplify
from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    Load,
    Range,
    Region,
    Stmt,
    Var,
    all_exprs,
    all_of,
    free_vars,
    is_const,
    loads_in,
    seq,
)
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.access import RegionAccess, accesses_in, writes_are_distinct
from tilewright.schedule.facts.block_facts import (
    block_always_reads,
    block_is_no_part_of_another,
    block_is_repeatable,
    block_is_the_only_writer,
    loops_cover_the_domain,
    only_its_domain_limits,
    readers_come_after,
)
from tilewright.schedule.facts.boxes import (
    Box,
    Rebuilt,
    box_around,
    box_is_full,
    contains,
    instances_touching,
    ranges_inside,
    spread,
    under_loops,
)
from tilewright.schedule.facts.flow import (
    inputs_are_ready,
    instances_have_elements_of_their_own,
    is_unfinished_along,
    loops_at_once,
    parallel_loops_stay_parallel,
)
from tilewright.schedule.facts.place import (
    comes_before,
    loops_between,
    outermost,
    part_of,
    variables,
)
from tilewright.schedule.handles import Loop

Instances = dict[Var, Range]


def reverse_compute_at(tree: Tree, block: Block, loop: For) -> Edit:
    """Compute a block in a loop of its producers: in each iteration, on what that one made.

    for i in 8: for k in 4: T[i] += A[i, k]      -->      for i in 8:
    for i in 8: B[i] = max(T[i], 0)                           for k in 4: T[i] += A[i, k]
                                                              B[i] = max(T[i], 0)
    """
    check(tree, block, loop)
    function, moved = _moved(tree, block, loop)
    return Edit(function, tuple(Loop(part.var) for part in moved.loops))


def check(tree: Tree, block: Block, loop: For) -> None:
    what = f"cannot compute block {block.name} at loop {loop.var.name} of its producers"
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        _loop_comes_before(tree, block, loop),
        block_is_repeatable(block),
        instances_have_elements_of_their_own(block),
        only_its_domain_limits(tree, block),
        loops_cover_the_domain(tree, block),
    )
    made = _made_inside(tree, block, loop)
    require(tree, what, None if made else _nothing_is_made(block, loop))
    for buffer in made:
        require(tree, what, _is_complete_after(tree, block, loop, buffer))
    wanted = _instances(tree, block, loop, made)
    for buffer in made:
        require(tree, what, _elements_match(tree, block, loop, buffer, wanted))
    require(tree, what, inputs_are_ready(tree, block, loop, apart_from=made))
    for buffer in buffers_touched(block)[1]:
        require(
            tree,
            what,
            block_is_the_only_writer(tree, block, buffer),
            readers_come_after(tree, block, buffer),
        )
    if loops_at_once(tree, loop):
        after = Tree(_moved(tree, block, loop)[0])
        require(tree, what, parallel_loops_stay_parallel(after, after.blocks[block.name]))


# ---- legality -----------------------------------------------------------------------------------


def _loop_comes_before(tree: Tree, block: Block, loop: For) -> Fault | None:
    if tree.is_above(loop, block):
        reason = f"block {block.name} is in loop {loop.var.name} already"
        return Fault(reason, "choose a loop of its producers", loop)
    if not comes_before(tree, loop, block):
        reason = f"loop {loop.var.name} comes after block {block.name}"
        return Fault(reason, "choose a loop of its producers, or use compute_at", loop)
    scope = tree.scope(loop)
    if scope is not None:
        return Fault(f"loop {loop.var.name} stands in block {scope.name}", "", loop)
    return None


def _made_inside(tree: Tree, block: Block, loop: For) -> list[Buffer]:
    """The buffers that `block` reads and that blocks in `loop` write."""
    reads, writes = buffers_touched(block)
    return [b for b in reads if b not in writes and _writers_inside(tree, loop, b)]


def _writers_inside(tree: Tree, loop: For, buffer: Buffer) -> list[Block]:
    return [w for w in outermost(tree, tree.writers(buffer)) if tree.is_above(loop, w)]


def _nothing_is_made(block: Block, loop: For) -> Fault:
    return Fault(
        f"nothing that block {block.name} reads is written in loop {loop.var.name}",
        "choose a loop of its producers",
        loop,
    )


def _is_complete_after(tree: Tree, block: Block, loop: For, buffer: Buffer) -> Fault | None:
    """Elements have their final values once an iteration has written them."""
    writers = outermost(tree, tree.writers(buffer))
    outside = next((w for w in writers if not tree.is_above(loop, w)), None)
    if outside is not None:
        reason = f"block {outside.name} outside of loop {loop.var.name} writes {buffer.name} too"
        return Fault(reason, "", outside)
    around = [*tree.loops_above(loop), loop]
    for writer in writers:
        if is_unfinished_along(writer, around):
            names = ", ".join(f.var.name for f in around if is_unfinished_along(writer, [f]))
            return Fault(
                f"block {writer.name} has not finished reducing {buffer.name} after an iteration "
                f"of loop {loop.var.name}: loop {names} reduces",
                "choose a loop outside of the reduction",
                writer,
            )
        if not writes_are_distinct(writer):
            return Fault(f"block {writer.name} writes elements of {buffer.name} twice", "", writer)
    return _is_no_index(tree, block, buffer)


def _is_no_index(tree: Tree, block: Block, buffer: Buffer) -> Fault | None:
    """Reading elements before they are complete is harmless for values, but not for indices that
    could then be out of bounds."""
    ranges = Ranges.for_function(tree.function)
    for expr in all_exprs(block):
        if not isinstance(expr, Load):
            continue
        pairs = zip(expr.indices, expr.buffer.shape, strict=True)
        told = [p for p in pairs if any(inner.buffer is buffer for inner in loads_in(p[0]))]
        if not all(prove(all_of(i >= 0, i < extent), ranges) for i, extent in told):
            return Fault(f"block {block.name} uses {buffer.name} to index", "", block)
    return None


def _elements_match(
    tree: Tree, block: Block, loop: For, buffer: Buffer, wanted: Instances
) -> Fault | None:
    """Each instance runs in the iteration that writes the last element it reads."""
    reading = _readers_of(tree, block, loop, buffer)
    if reading and _may_be_left_out(tree, block, loop, buffer):
        return Fault(
            f"block {block.name} does not always read {buffer.name}, and instances that do not "
            "would be left out",
            "use compute_at for the producer, or decompose_padding first",
            block,
        )
    if not _covers_all(block, buffer, reading):
        fault = _reads_what_is_written(tree, block, loop, buffer, wanted)
        if fault is not None:
            return fault
    if reading == wanted or _box_is_full(tree, loop, buffer):
        return None
    return Fault(
        f"what an iteration of loop {loop.var.name} writes to {buffer.name} does not fit what it "
        "writes to the other buffers that the block reads",
        "",
        block,
    )


def _may_be_left_out(tree: Tree, block: Block, loop: For, buffer: Buffer) -> bool:
    """Whether an instance may not read the buffer, and it is not known in which iteration it
    belongs: the one that writes the element at its index."""
    if block_always_reads(block, buffer):
        return False
    ranges = Ranges.for_function(tree.function)
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    pairs = zip(_region(block, buffer).ranges, buffer.shape, strict=True)
    names_one = all(
        is_const(r.extent, 1) and prove(all_of(r.start >= 0, r.start < extent), ranges)
        for r, extent in pairs
    )
    writers = _writers_inside(tree, loop, buffer)
    return not names_one or not any(_writes_all(tree, w, buffer) for w in writers)


def _writes_all(tree: Tree, writer: Block, buffer: Buffer) -> bool:
    """Whether a block writes every element of a buffer, each by a separate instance."""
    extents = {it.var: it.extent for it in writer.iters}
    starts = [r.start for w in writer.writes if w.buffer is buffer for r in w.ranges]
    used = [s for s in starts if isinstance(s, Var)]
    fills = [
        is_const(extent, 1) or (isinstance(s, Var) and extents.get(s) is extent)
        for s, extent in zip(starts, buffer.shape, strict=True)
    ]
    is_plain = all(fills) and len(set(used)) == len(used)
    return is_plain and loops_cover_the_domain(tree, writer) is None


def _covers_all(block: Block, buffer: Buffer, reading: Instances) -> bool:
    """Whether one element is read, by iterators that are determined by what is written."""
    ranges = _region(block, buffer).ranges
    return all(is_const(r.extent, 1) and free_vars(r.start) <= reading.keys() for r in ranges)


def _reads_what_is_written(
    tree: Tree, block: Block, loop: For, buffer: Buffer, wanted: Instances
) -> Fault | None:
    ranges = _running(block, wanted, ranges_inside(tree, loop))
    over = [it.var for it in block.iters]
    box, region = _written_box(tree, loop, buffer), _region(block, buffer)
    for own, part, extent in zip(region.ranges, box, buffer.shape, strict=True):
        if not contains(part, spread(own, over, ranges), extent, ranges):
            return Fault(
                f"block {block.name} reads {buffer.name} at `{own.start}`, of which one iteration "
                f"of loop {loop.var.name} writes only part",
                "read elements by plain iterators, or use compute_at for the producer",
                block,
            )
    return None


def _readers_of(tree: Tree, block: Block, loop: For, buffer: Buffer) -> Instances:
    """The instances that read what an iteration of `loop` writes to a buffer.

    Reductions are not split: each runs over its whole domain at once.
    """
    writes = _writes(tree, loop, buffer)
    spatial = [it for it in block.iters if it.kind == "spatial"]
    return instances_touching(tree, _region(block, buffer), writes, spatial, loop)


def _box_is_full(tree: Tree, loop: For, buffer: Buffer) -> bool:
    writes = _writes(tree, loop, buffer)
    return len(writes) == 1 and box_is_full(tree, writes[0], loop)


# ---- edit ---------------------------------------------------------------------------------------


def _moved(tree: Tree, block: Block, loop: For) -> tuple[Function, Rebuilt]:
    made = _made_inside(tree, block, loop)
    writers = [w for buffer in made for w in _writers_inside(tree, loop, buffer)]
    at = part_of(tree, loop, writers[0])
    for part in (part_of(tree, loop, w) for w in writers[1:]):
        at = part if comes_before(tree, at, part) else at
    wanted = _instances(tree, block, loop, made)
    where = [c for buffer in made for c in _where_written(tree, block, loop, buffer, wanted)]
    moved = under_loops(block, wanted, ranges_inside(tree, loop), where)
    changes: dict[Stmt, Stmt] = {tree.removable(block): seq(), at: seq(at, moved.nest)}
    return tree.replace_all(changes), moved


def _instances(tree: Tree, block: Block, loop: For, made: Sequence[Buffer]) -> Instances:
    """The part of its domain that `block` runs over in an iteration of `loop`.

    Where buffers disagree about an iterator, it runs over its whole domain.
    """
    found: dict[Var, Range | None] = {}
    for buffer in made:
        for var, part in _readers_of(tree, block, loop, buffer).items():
            known = found.setdefault(var, part)
            if known is not None and known != part:
                found[var] = None
    return {var: part for var, part in found.items() if part is not None}


def _where_written(
    tree: Tree, block: Block, loop: For, buffer: Buffer, wanted: Instances
) -> list[Expr]:
    """Conditions on the instances that read what an iteration writes, if that is not a full box.

    for i in 3: for j in 11 where i * 11 + j < 32: T[n * 32 + i * 11 + j] = …       e - n * 32 < 32
    """
    writes = _writes(tree, loop, buffer)
    if len(writes) > 1 or loops_cover_the_domain(tree, writes[0].block) is not None:
        return []
    written, over = writes[0], variables(loops_between(tree, loop, writes[0].block))
    found: list[Expr] = []
    for own, part in zip(_region(block, buffer).ranges, written.ranges, strict=True):
        if not isinstance(own.start, Var) or own.start not in wanted:
            continue
        for condition in conjuncts(written.block.predicate):
            limit = _limit(condition, part.start, over)
            found += [] if limit is None else [own.start < limit]
    return found


def _limit(condition: Expr, index: Expr, over: Collection[Var]) -> Expr | None:
    """The upper limit of an index that a condition implies, whatever the values of the variables
    `over`; None where the condition says more than that."""
    if not isinstance(condition, Binary) or condition.op != "lt":
        return None
    limit = simplify(index - condition.a + condition.b)
    runs = not free_vars(condition).isdisjoint(over)
    return limit if runs and free_vars(limit).isdisjoint(over) else None


def _running(block: Block, wanted: Instances, ranges: Ranges) -> Ranges:
    """What is known about the iterators of `block` in its new place."""
    for it in block.iters:
        part = wanted.get(it.var)
        if part is None:
            ranges = ranges.with_extent(it.var, it.extent)
        else:
            ranges = ranges.with_bounds(it.var, part.start, part.start + part.extent - 1)
    return ranges


def _written_box(tree: Tree, loop: For, buffer: Buffer) -> Box:
    return box_around(tree, _writes(tree, loop, buffer), loop)


def _writes(tree: Tree, loop: For, buffer: Buffer) -> list[RegionAccess]:
    return [a for a in accesses_in(tree, loop) if a.is_write and a.buffer is buffer]


def _region(block: Block, buffer: Buffer) -> Region:
    return next(r for r in block.reads if r.buffer is buffer)
