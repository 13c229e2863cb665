"""reindex(block, buffer, dimensions)"""

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


def reindex(
    tree: Tree, block: Block, buffer: BufferLike, dimensions: Sequence[int] | None = None
) -> Edit:
    """Let a block access a new buffer by its iterators alone, and copy from or to the old one.

    for i, r: B[i] += A[i + r]      -->      for i, r: A_reindex[i, r] = A[i + r]
                                             for i, r: B[i] += A_reindex[i, r]

    For a buffer that is read, `dimensions` selects which are reindexed; the others are copied as
    they are.
    """
    check(tree, block, buffer, dimensions)
    old = buffer_touched(block, buffer)
    is_write = old in buffers_touched(block)[1]
    indices = _indices(block, old)
    assert not isinstance(indices, Fault)
    view_of = _View(block, old, indices, dimensions)
    used = view_of.iters
    view = stand_in(tree, old, "reindex", shape=[it.extent for it in used])
    name = stage_name(tree, view)
    site = site_after(tree, block, old) if is_write else site_before(tree, block, old)
    assert not isinstance(site, Fault)

    def store(own: Mapping[Var, Expr]) -> Store:
        plain, place = tuple(own[it.var] for it in used), at_indices(view_of.copied, own)
        if is_write:
            return Store(old, place, Load(view, plain))
        return Store(view, plain, Load(old, place))

    copy = copy_by_instance(tree, site, block, used, store, name)
    changed = tree.rebuilt(site.at, block, _with_view(block, old, view, view_of.touched))
    parts = (changed, copy) if is_write else (copy, changed)
    return Edit(with_buffers(tree.replace(site.at, seq(*parts)), view), (BlockRef(name),))


def check(
    tree: Tree, block: Block, buffer: BufferLike, dimensions: Sequence[int] | None = None
) -> None:
    old = buffer_touched(block, buffer)
    what = f"cannot reindex {old.name} for block {block.name}"
    require(tree, what, block_is_no_part_of_another(tree, block), no_address_is_taken(tree, old))
    indices = _indices(block, old)
    if isinstance(indices, Fault):
        return require(tree, what, indices)
    if old in buffers_touched(block)[1]:
        require(tree, what, _is_whole(dimensions, block))
        return require(tree, what, result_can_be_copied(tree, block, buffer))
    site = site_before(tree, block, old)
    require(tree, what, site if isinstance(site, Fault) else None)
    require(tree, what, _are_dimensions(dimensions, old))
    chosen = range(old.ndim) if dimensions is None else dimensions
    inside = [(indices[k], old.shape[k]) for k in chosen]
    return require(tree, what, _stays_inside(tree, block, old, inside))


class _View:
    """The replacement of a buffer: its dimensions, and how it is accessed."""

    def __init__(
        self,
        block: Block,
        buffer: Buffer,
        indices: Sequence[Expr],
        dimensions: Sequence[int] | None,
    ) -> None:
        """`iters` run over the copy, `copied` are the old indices in terms of these, and `touched`
        is where the block accesses the view."""
        self.iters: list[Iter] = []
        self.copied: list[Expr] = []
        self.touched: list[Expr] = []
        if dimensions is None:
            self._add_iterators(_iterators_in(indices, block))
            self.copied = [*indices]
            return
        for k, index in enumerate(indices):
            is_own = any(index is it.var for it in block.iters)
            if k in dimensions or is_own:
                self._add_iterators(_iterators_in([index], block))
                self.copied.append(index)
                continue
            whole = Iter(Var(f"v{k}"), buffer.shape[k], "spatial")
            self.iters.append(whole)
            self.copied.append(whole.var)
            self.touched.append(index)

    def _add_iterators(self, iters: Sequence[Iter]) -> None:
        new = [it for it in iters if it not in self.iters]
        self.iters += new
        self.touched += [it.var for it in new]


def _is_whole(dimensions: Sequence[int] | None, block: Block) -> Fault | None:
    if dimensions is None:
        return None
    return Fault("only of a buffer that is read may dimensions be named", "name none", block)


def _are_dimensions(dimensions: Sequence[int] | None, buffer: Buffer) -> Fault | None:
    if dimensions is None or all(k in range(buffer.ndim) for k in dimensions):
        return None
    reason = f"{buffer.name} has the dimensions 0 to {buffer.ndim - 1}, not {[*dimensions]}"
    return Fault(reason, "name some of these")


def _indices(block: Block, buffer: Buffer) -> tuple[Expr, ...] | Fault:
    """The indices at which an instance of `block` accesses the buffer."""
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
    tree: Tree, block: Block, buffer: Buffer, indices: Sequence[tuple[Expr, Expr]]
) -> Fault | None:
    """All iterations stay inside the buffer: the copy has no guards. Indices come with the extents
    of their dimensions."""
    ranges = Ranges.for_function(tree.function)
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    for index, extent in indices:
        if not prove(all_of(index >= 0, index < extent), ranges):
            return Fault(
                f"block {block.name} may read `{index}`, outside of {buffer.name}",
                "give the padding a block of its own",
                block,
            )
    return None


def _with_view(block: Block, old: Buffer, view: Buffer, touched: Sequence[Expr]) -> Stmt:
    plain = tuple(touched)
    return change_accesses(
        block,
        [old],
        lambda _: Load(view, plain),
        lambda store: Store(view, plain, store.value, store.mask, store.span),
    )


def _stores(block: Block) -> list[Store]:
    return [s for s in walk(block) if isinstance(s, Store)]
