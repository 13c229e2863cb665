"""cache_write(block, buffer, scope)"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Block, If, Iter, Load, Store, seq, walk
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_is_no_part_of_another,
    block_is_the_only_writer,
    no_address_is_taken,
    only_its_domain_limits,
)
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.primitives.buffers.cache_read import scope_exists
from tilewright.schedule.stages import (
    at_indices,
    copy_by_instance,
    site_after,
    stage_name,
    stand_in,
)
from tilewright.schedule.writing import (
    BufferLike,
    Written,
    buffer_written,
    redirect,
    stores_of,
)


def cache_write(tree: Tree, block: Block, buffer: BufferLike, scope: str = "global") -> Edit:
    """Let a block write into a new buffer, and copy from there when it is done.

    for i: for k: B[i] += A[i, k]      -->      for i: for k: B_local[i] += A[i, k]
                                                for i: B[i] = B_local[i]
    """
    check(tree, block, buffer, scope)
    target = buffer_written(block, buffer)
    cache = stand_in(tree, target, scope, scope=scope)
    site = site_after(tree, block, target)
    written = element_written(block, target)
    assert not isinstance(site, Fault) and not isinstance(written, Fault)
    name = stage_name(tree, cache)
    copy = copy_by_instance(
        tree,
        site,
        block,
        spatial_iters(block),
        lambda own: Store(
            target, at_indices(written.indices, own), Load(cache, at_indices(written.indices, own))
        ),
        name,
    )
    writing = tree.rebuilt(site.at, block, redirect(block, {target: cache}))
    function = tree.replace(site.at, seq(writing, copy))
    return Edit(with_buffers(function, cache), (BlockRef(name),))


def check(tree: Tree, block: Block, buffer: BufferLike, scope: str = "global") -> None:
    what = f"cannot cache what block {block.name} writes"
    require(tree, what, scope_exists(scope), block_is_no_part_of_another(tree, block))
    target = buffer_written(block, buffer)
    what = f"cannot cache {target.name} for block {block.name}"
    require(
        tree, what, no_address_is_taken(tree, target), result_can_be_copied(tree, block, buffer)
    )


def result_can_be_copied(tree: Tree, block: Block, buffer: BufferLike) -> Fault | None:
    """Whether the element that `block` writes is known, and can be copied afterwards."""
    target = buffer_written(block, buffer)
    written = element_written(block, target)
    if isinstance(written, Fault):
        return written
    fault = block_is_the_only_writer(tree, block, target) or only_its_domain_limits(tree, block)
    if fault is not None:
        return fault
    site = site_after(tree, block, target)
    return site if isinstance(site, Fault) else None


def element_written(block: Block, buffer: object) -> Written | Fault:
    """The one element of the buffer that an instance of `block` writes.

    In a reduction some instances may not write: the init has written the element.
    """
    body = block.body
    if block.init is not None and isinstance(body, If) and body.otherwise is None:
        block = replace(block, body=body.then)
    stores = stores_of(block)
    if isinstance(stores, Fault):
        return stores
    written = next(w for w in stores if w.buffer is buffer)
    places = {s.indices for s in walk(block) if isinstance(s, Store) and s.buffer is buffer}
    if len(places) == 1:
        return written
    return Fault(f"block {block.name} writes several elements of {written.buffer.name}", "", block)


def spatial_iters(block: Block) -> list[Iter]:
    return [it for it in block.iters if it.kind != "reduce"]
