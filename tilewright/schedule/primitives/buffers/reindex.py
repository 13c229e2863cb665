"""reindex(block, buffer)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith import Ranges, prove
from tilewright.ir import (
    Block,
    Buffer,
    Expr,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    all_exprs,
    all_of,
    free_vars,
    loads_in,
    seq,
    walk,
)
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.edit import Edit, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_is_no_part_of_another,
    no_address_is_taken,
)
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.primitives.buffers.cache_write import element_written, result_can_be_copied
from tilewright.schedule.stages import (
    at_indices,
    copy_by_instance,
    site_after,
    site_before,
    stage_name,
    stand_in,
)
from tilewright.schedule.writing import BufferLike, buffer_touched, change_accesses


def reindex(tree: Tree, block: Block, buffer: BufferLike) -> Edit:
    """Let a block touch a new buffer at its iterators alone, and copy from or to the old one.

    for i, r: B[i] += A[i + r]      -->      for i, r: A_reindex[i, r] = A[i + r]
                                             for i, r: B[i] += A_reindex[i, r]
    """
    check(tree, block, buffer)
    old = buffer_touched(block, buffer)
    is_write = old in buffers_touched(block)[1]
    indices = _indices(block, old)
    assert not isinstance(indices, Fault)
    used = _iterators_in(indices, block)
    view = stand_in(tree, old, "reindex", shape=[it.extent for it in used])
    name = stage_name(tree, view)
    site = site_after(tree, block, old) if is_write else site_before(tree, block, old)
    assert not isinstance(site, Fault)

    def store(own: Mapping[Var, Expr]) -> Store:
        plain, place = tuple(own[it.var] for it in used), at_indices(indices, own)
        if is_write:
            return Store(old, place, Load(view, plain))
        return Store(view, plain, Load(old, place))

    copy = copy_by_instance(tree, site, block, used, store, name)
    changed = tree.rebuilt(site.at, block, _with_view(block, old, view, used))
    parts = (changed, copy) if is_write else (copy, changed)
    return Edit(with_buffers(tree.replace(site.at, seq(*parts)), view), (BlockRef(name),))


def check(tree: Tree, block: Block, buffer: BufferLike) -> None:
    old = buffer_touched(block, buffer)
    what = f"cannot reindex {old.name} for block {block.name}"
    require(tree, what, block_is_no_part_of_another(tree, block), no_address_is_taken(tree, old))
    indices = _indices(block, old)
    if isinstance(indices, Fault):
        return require(tree, what, indices)
    if old in buffers_touched(block)[1]:
        return require(tree, what, result_can_be_copied(tree, block, buffer))
    site = site_before(tree, block, old)
    require(tree, what, site if isinstance(site, Fault) else None)
    return require(tree, what, _stays_inside(tree, block, old, indices))


def _indices(block: Block, buffer: Buffer) -> tuple[Expr, ...] | Fault:
    """Where an instance of `block` touches the buffer."""
    if buffer in buffers_touched(block)[1]:
        written = element_written(block, buffer)
        if isinstance(written, Fault):
            return written
    found = {e.indices for e in all_exprs(block) if isinstance(e, Load) and e.buffer is buffer}
    found |= {s.indices for s in _stores(block) if s.buffer is buffer}
    if len(found) != 1:
        return Fault(
            f"block {block.name} touches {buffer.name} at {len(found)} places",
            "only a buffer that is touched at one place can be reindexed",
            block,
        )
    (indices,) = found
    own = {it.var for it in block.iters}
    if any(loads_in(i) or not free_vars(i) <= own for i in indices):
        reason = f"where it touches {buffer.name} depends on more than its iterators"
        return Fault(reason, "", block)
    return indices


def _iterators_in(indices: Sequence[Expr], block: Block) -> list[Iter]:
    used = frozenset[Var]().union(*map(free_vars, indices))
    return [it for it in block.iters if it.var in used]


def _stays_inside(
    tree: Tree, block: Block, buffer: Buffer, indices: Sequence[Expr]
) -> Fault | None:
    """No value of the iterators leads outside of the buffer: the copy has no guards."""
    ranges = Ranges.for_function(tree.function)
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    for index, extent in zip(indices, buffer.shape, strict=True):
        if not prove(all_of(index >= 0, index < extent), ranges):
            return Fault(
                f"block {block.name} may read `{index}`, outside of {buffer.name}",
                "give the padding a block of its own",
                block,
            )
    return None


def _with_view(block: Block, old: Buffer, view: Buffer, used: Sequence[Iter]) -> Stmt:
    plain = tuple(it.var for it in used)
    return change_accesses(
        block,
        [old],
        lambda _: Load(view, plain),
        lambda store: Store(view, plain, store.value, store.mask, store.span),
    )


def _stores(block: Block) -> list[Store]:
    return [s for s in walk(block) if isinstance(s, Store)]
