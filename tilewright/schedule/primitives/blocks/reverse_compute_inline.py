"""reverse_compute_inline(block)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.arith import Ranges, conjuncts, prove, simplify
from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    Expr,
    Load,
    Store,
    Var,
    all_of,
    loads_in,
    make_block,
    map_expr,
    seq,
    substitute,
)
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.edit import Edit, needed
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_always_reads,
    block_has_no_effects,
    block_is_no_part_of_another,
    block_is_spatial,
    block_is_the_only_writer,
    buffer_is_intermediate,
    loops_cover_the_domain,
    no_address_is_taken,
    only_its_domain_limits,
    readers_come_after,
)
from tilewright.schedule.facts.flow import (
    inputs_are_ready,
)
from tilewright.schedule.facts.inverse import Solution, solved
from tilewright.schedule.facts.place import outermost
from tilewright.schedule.writing import Written, stores_of, without_buffer


def reverse_compute_inline(tree: Tree, block: Block) -> Edit:
    """Compute an elementwise block in its producer; the block and the buffer between are removed.

    for i: T[i] = A[i] + 1      -->      for i: B[i] = (A[i] + 1) * 2
    for i: B[i] = T[i] * 2
    """
    check(tree, block)
    producer = _producer(tree, block)
    assert isinstance(producer, Block)
    buffer = _handed_over(tree, block, producer)
    assert isinstance(buffer, Buffer)
    joined = _joined(tree, producer, block, buffer)
    assert isinstance(joined, Block)
    function = tree.replace_all({producer: joined, tree.removable(block): seq()})
    return Edit(without_buffer(function, buffer))


def check(tree: Tree, block: Block) -> None:
    what = f"cannot inline block {block.name} into its producer"
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        block_is_spatial(block),
        block_has_no_effects(block),
        only_its_domain_limits(tree, block),
    )
    producer = _producer(tree, block)
    if isinstance(producer, Fault):
        return require(tree, what, producer)
    require(tree, what, _producer_is_elementwise(producer))
    buffer = _handed_over(tree, block, producer)
    if isinstance(buffer, Fault):
        return require(tree, what, buffer)
    require(
        tree,
        what,
        buffer_is_intermediate(tree, buffer),
        no_address_is_taken(tree, buffer),
        _is_the_only_reader(tree, block, buffer),
        inputs_are_ready(tree, block, producer, apart_from=[buffer]),
    )
    for output in buffers_touched(block)[1]:
        require(
            tree,
            what,
            block_is_the_only_writer(tree, block, output),
            readers_come_after(tree, block, output),
        )
    joined = _joined(tree, producer, block, buffer)
    return require(tree, what, joined if isinstance(joined, Fault) else None)


def _producer(tree: Tree, block: Block) -> Block | Fault:
    """The one block that writes what `block` reads."""
    found = outermost(tree, tree.producers(block))
    if len(found) == 1:
        return found[0]
    names = ", ".join(b.name for b in found)
    return Fault(
        f"{len(found)} blocks write what it reads: {names}"
        if found
        else "no block writes what it reads",
        "only a block with one producer can be inlined into it",
        block,
    )


def _producer_is_elementwise(producer: Block) -> Fault | None:
    fault = block_is_spatial(producer) or block_has_no_effects(producer)
    if fault is None:
        return None
    return fault._replace(remedy="use reverse_compute_at to bring the two together in one loop")


def _handed_over(tree: Tree, block: Block, producer: Block) -> Buffer | Fault:
    reads, _ = buffers_touched(block)
    _, writes = buffers_touched(producer)
    found = [b for b in writes if b in reads]
    if len(writes) == 1 and len(found) == 1:
        return found[0]
    names = ", ".join(b.name for b in writes)
    return Fault(f"its producer {producer.name} writes several buffers: {names}", "", producer)


def _is_the_only_reader(tree: Tree, block: Block, buffer: Buffer) -> Fault | None:
    for reader in tree.readers(buffer):
        if not tree.is_above(block, reader):
            reason = f"block {reader.name} reads {buffer.name} too"
            return Fault(reason, "use compute_inline for the producer instead", reader)
    return None


def _joined(tree: Tree, producer: Block, block: Block, buffer: Buffer) -> Block | Fault:
    """The producer, storing what `block` computes from its value."""
    made, taken = stores_of(producer), stores_of(block)
    if isinstance(made, Fault):
        return made
    if isinstance(taken, Fault):
        return taken
    read = _element_read(block, taken, buffer)
    if isinstance(read, Fault):
        return read
    fault = _every_instance_is_met(tree, producer, block, made[0], read)
    if fault is not None:
        return fault
    values = read.solution.at(made[0].indices)
    ranges = tree.ranges_at(producer)
    inner = ranges
    for it in producer.iters:
        inner = inner.with_extent(it.var, it.extent)
    conditions = _instance_exists(block, values, read.indices, made[0].indices)
    bound = dict(zip((it.var for it in producer.iters), producer.bindings, strict=True))
    inside = [substitute(c, bound) for c in conditions if not prove(c, inner)]
    return make_block(
        producer.name,
        producer.iters,
        producer.bindings,
        seq(*(_store(w, values, made[0], inner) for w in taken)),
        predicate=needed([*conjuncts(producer.predicate), *inside], ranges),
        annotations={**producer.annotations, **block.annotations},
        span=block.span,
    )


class _Read(NamedTuple):
    """The element that an instance of a block reads, and the instance for a given element."""

    indices: tuple[Expr, ...]
    solution: Solution
    #: Whether every instance reads its element, whatever the data.
    always: bool


def _every_instance_is_met(
    tree: Tree, producer: Block, block: Block, made: Written, read: _Read
) -> Fault | None:
    """The producer computes an element for each instance of `block`, so that none is lost."""
    ranges = Ranges.for_function(tree.function)
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    solution = solved(made.indices, producer.iters)
    instance = {} if solution is None else solution.at(read.indices)
    exists = (
        prove(all_of(instance[it.var] >= 0, instance[it.var] < it.extent), ranges)
        for it in producer.iters
        if it.var in instance
    )
    runs = read.always or loops_cover_the_domain(tree, producer) is None
    if solution is not None and runs and all(exists):
        return None
    return Fault(
        f"it is not clear that block {producer.name} makes an element of {made.buffer.name} for "
        f"every instance of block {block.name}",
        "use compute_inline for the producer instead",
        block,
    )


def _instance_exists(
    block: Block, values: dict[Var, Expr], read: Sequence[Expr], made: Sequence[Expr]
) -> Iterator[Expr]:
    """Conditions: the instance is in its domain, and reads exactly the element that is computed."""
    for it in block.iters:
        yield values[it.var] >= 0
        yield values[it.var] < it.extent
    for index, wanted in zip(read, made, strict=True):
        yield Binary("eq", substitute(index, values), wanted)


def _element_read(block: Block, taken: list[Written], buffer: Buffer) -> _Read | Fault:
    exprs = [e for w in taken for e in (w.value, *w.indices)]
    indices = {e.indices for top in exprs for e in loads_in(top) if e.buffer is buffer}
    if len(indices) != 1:
        return Fault(
            f"block {block.name} reads {buffer.name} at {len(indices)} places",
            "use compute_inline for the producer instead",
            block,
        )
    found = next(iter(indices))
    solution = solved(found, block.iters)
    if solution is None:
        return Fault(
            f"the element of {buffer.name} that block {block.name} reads does not determine its "
            "iterators",
            f"only reads like {buffer.name}[vi, vj], by all iterators, can be turned round",
            block,
        )
    return _Read(found, solution, block_always_reads(block, buffer))


def _store(written: Written, values: dict[Var, Expr], made: Written, ranges: Ranges) -> Store:
    def on_node(e: Expr) -> Expr | None:
        return made.value if isinstance(e, Load) and e.buffer is made.buffer else None

    # Substitute variables first: the inserted value contains the producer's own ones.
    value = map_expr(substitute(written.value, values), on_node)
    indices = tuple(simplify(substitute(i, values), ranges) for i in written.indices)
    return Store(written.buffer, indices, simplify(value, ranges))
