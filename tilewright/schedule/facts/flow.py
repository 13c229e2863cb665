"""When a block can be moved: predicates about the values that flow between blocks.

Each returns None where it holds, else the `Fault` with the reason, the remedy and the culprit.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import (
    Block,
    Buffer,
    For,
    Load,
    Stmt,
    all_exprs,
    free_vars,
    loads_in,
)
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.access import (
    accesses_of,
    writes_are_distinct,
    writes_differ_along,
)
from tilewright.schedule.facts.block_facts import block_is_repeatable, only_its_domain_limits
from tilewright.schedule.facts.boxes import box_around, contains
from tilewright.schedule.facts.dependence import iterations_are_independent
from tilewright.schedule.facts.place import comes_before, outermost, shared_loops

# ---- moving in time -----------------------------------------------------------------------------


def inputs_keep_their_values(tree: Tree, block: Block, until: Stmt) -> Fault | None:
    """Inputs of `block` have the same values when they are read at `until`, further down."""
    reads, writes = buffers_touched(block)
    for buffer in reads:
        if buffer in writes:
            continue
        for writer in outermost(tree, tree.writers(buffer)):
            fault = _value_stays(tree, writer, block, buffer, until)
            if fault is not None:
                return fault
    return None


def _value_stays(
    tree: Tree, writer: Block, block: Block, buffer: Buffer, until: Stmt
) -> Fault | None:
    moved = f"block {block.name} reads {buffer.name}, which block {writer.name} writes"
    if not comes_before(tree, writer, block) or not comes_before(tree, writer, until):
        return Fault(f"{moved} later", f"move {writer.name} first", writer)
    # Within loops around both places, the value is that of the present iteration.
    still = shared_loops(tree, writer, until)
    around = [loop for loop in shared_loops(tree, writer, block) if loop not in still]
    if around and not _writes_final_values(tree, writer, around):
        name = around[-1].var.name
        return Fault(f"{moved} anew in every iteration of loop {name}", "", writer)
    return None


def _writes_final_values(tree: Tree, writer: Block, around: list[For]) -> bool:
    """Whether each element has its final value at the end of an iteration."""
    if block_is_repeatable(writer) is not None or not writes_are_distinct(writer):
        return False
    return not reduces_along(writer, around)


def reduces_along(block: Block, loops: Iterable[For]) -> bool:
    """Whether one of the loops determines an iterator that is not spatial."""
    running = {loop.var for loop in loops}
    pairs = zip(block.iters, block.bindings, strict=True)
    return any(it.kind != "spatial" and free_vars(v) & running for it, v in pairs)


def is_unfinished_along(block: Block, loops: Iterable[For]) -> bool:
    """Whether values that an iteration of the loops writes may change in a later one.

    A step of a scan whose elements no other step writes is finished when it ends.
    """
    running = {loop.var for loop in loops}
    pairs = zip(block.iters, block.bindings, strict=True)
    moved = [it for it, v in pairs if it.kind != "spatial" and free_vars(v) & running]
    return any(it.kind == "reduce" or not writes_differ_along(block, it.var) for it in moved)


def instances_have_elements_of_their_own(block: Block) -> Fault | None:
    """No other instance writes the same elements, so that an instance can run by itself."""
    if writes_are_distinct(block):
        return None
    return Fault(
        f"several instances of block {block.name} write the same element",
        "do this before buffers have several versions",
        block,
    )


def indices_are_ready(tree: Tree, block: Block, at: Stmt) -> Fault | None:
    """Buffers that are used as indices are complete, so that instances whose results are not used
    stay in bounds, too."""
    for index in (i for e in all_exprs(block) if isinstance(e, Load) for i in e.indices):
        for buffer in (load.buffer for load in loads_in(index)):
            for writer in outermost(tree, tree.writers(buffer)):
                if shared_loops(tree, writer, at):
                    reason = f"block {block.name} indexes by {buffer.name}, which is not complete"
                    return Fault(reason, f"move block {writer.name} out of the loops", writer)
    return None


def inputs_are_ready(
    tree: Tree, block: Block, at: Stmt, apart_from: Iterable[Buffer] = ()
) -> Fault | None:
    """The inputs of `block` are complete when `at` begins, in every iteration."""
    reads, writes = buffers_touched(block)
    skipped = {*writes, *apart_from}
    for buffer in (b for b in reads if b not in skipped):
        for writer in outermost(tree, tree.writers(buffer)):
            moved = f"block {block.name} reads {buffer.name}, which block {writer.name} writes"
            if not comes_before(tree, writer, at):
                return Fault(f"{moved} later", f"move {writer.name} first", writer)
            if shared_loops(tree, writer, at):
                return Fault(f"{moved} in the same loops", f"move {writer.name} out first", writer)
    return None


def values_stay_in_iterations(tree: Tree, loop: For, buffer: Buffer) -> Fault | None:
    """No value in the buffer outlives an iteration, which writes everything before it reads it."""
    touching = [*tree.readers(buffer), *tree.writers(buffer)]
    outside = next((b for b in touching if not tree.is_above(loop, b)), None)
    if outside is not None:
        reason = f"block {outside.name} uses {buffer.name} outside of loop {loop.var.name}"
        return Fault(reason, "choose a loop around all that uses it", outside)
    writers = outermost(tree, tree.writers(buffer))
    for reader in outermost(tree, tree.readers(buffer)):
        if reader not in writers and not _is_covered(tree, loop, reader, buffer, writers):
            return Fault(
                f"block {reader.name} may read from {buffer.name} what an earlier iteration of "
                f"loop {loop.var.name} left there",
                "",
                reader,
            )
    carried = next((w for w in writers if not _starts_anew(loop, w, buffer)), None)
    if carried is not None:
        reason = f"block {carried.name} accumulates into {buffer.name} along loop {loop.var.name}"
        return Fault(reason, "", carried)
    return None


def _starts_anew(loop: For, writer: Block, buffer: Buffer) -> bool:
    reads, _ = buffers_touched(writer)
    if buffer not in reads:
        return True
    return writer.init is not None and not reduces_along(writer, [loop])


def _is_covered(
    tree: Tree, loop: For, reader: Block, buffer: Buffer, writers: Iterable[Block]
) -> bool:
    ranges = tree.ranges_at(loop).with_extent(loop.var, loop.extent)
    wanted = box_around(tree, [a for a in accesses_of(reader) if a.buffer is buffer], loop)
    for writer in writers:
        if not comes_before(tree, writer, reader) or only_its_domain_limits(tree, writer):
            continue
        written = box_around(
            tree, [a for a in accesses_of(writer) if a.is_write and a.buffer is buffer], loop
        )
        pairs = zip(written, wanted, buffer.shape, strict=True)
        if all(contains(w, r, extent, ranges) for w, r, extent in pairs):
            return True
    return False


# ---- afterwards ---------------------------------------------------------------------------------


def loops_at_once(tree: Tree, inner: Stmt) -> list[For]:
    """The loops at or around `inner` whose iterations run in parallel."""
    loops = (s for s in tree.path(inner) if isinstance(s, For))
    return [loop for loop in loops if loop.kind in ("parallel", "thread", "vectorized")]


def parallel_loops_stay_parallel(tree: Tree, inner: Stmt) -> Fault | None:
    """The parallel loops around it still have independent iterations."""
    for loop in loops_at_once(tree, inner):
        fault = iterations_are_independent(tree, loop)
        if fault is not None:
            reason = f"loop {loop.var.name} around it is {loop.kind}, and {fault.reason}"
            return fault._replace(reason=reason)
    return None
