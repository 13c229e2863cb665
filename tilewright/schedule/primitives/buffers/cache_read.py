"""cache_read(block, buffer, scope)"""

from __future__ import annotations

from tilewright.ir import SCOPES, Block, seq
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_is_no_part_of_another,
    no_address_is_taken,
)
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.stages import copy_by_element, site_before, stage_name, stand_in
from tilewright.schedule.writing import BufferLike, buffer_read, redirect
from tilewright.support.errors import nearest


def cache_read(tree: Tree, block: Block, buffer: BufferLike, scope: str = "global") -> Edit:
    """Copy a buffer that a block reads into a new one, and let the block read that.

    for i: B[i] = A[i] + 1      -->      for ax0: A_local[ax0] = A[ax0]
                                         for i: B[i] = A_local[i] + 1
    """
    check(tree, block, buffer, scope)
    source = buffer_read(block, buffer)
    cache = stand_in(tree, source, scope, scope=scope)
    site = site_before(tree, block, source)
    assert not isinstance(site, Fault)
    name = stage_name(tree, cache)
    copy = copy_by_element(tree, site, block, source, cache, name)
    reading = tree.rebuilt(site.at, block, redirect(block, {source: cache}))
    function = tree.replace(site.at, seq(copy, reading))
    return Edit(with_buffers(function, cache), (BlockRef(name),))


def check(tree: Tree, block: Block, buffer: BufferLike, scope: str = "global") -> None:
    what = f"cannot cache what block {block.name} reads"
    require(tree, what, scope_exists(scope), block_is_no_part_of_another(tree, block))
    source = buffer_read(block, buffer)
    what = f"cannot cache {source.name} for block {block.name}"
    require(tree, what, no_address_is_taken(tree, source))
    site = site_before(tree, block, source)
    require(tree, what, site if isinstance(site, Fault) else None)


def scope_exists(scope: str) -> Fault | None:
    if scope in SCOPES:
        return None
    return Fault(f"there is no scope {scope!r}", nearest(scope, SCOPES))
