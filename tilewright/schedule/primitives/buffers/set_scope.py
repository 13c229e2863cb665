"""set_scope(block, buffer, scope)"""

from __future__ import annotations

from tilewright.ir import Block
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import require
from tilewright.schedule.facts.block_facts import (
    buffer_is_intermediate,
)
from tilewright.schedule.primitives.buffers.cache_read import scope_exists
from tilewright.schedule.writing import BufferLike, buffer_touched, with_buffer_changed


def set_scope(tree: Tree, block: Block, buffer: BufferLike, scope: str) -> Edit:
    """Choose the memory scope of an intermediate buffer: global, local, shared or tile.

    T = alloc(f32[64])      -->      T = alloc(f32[64], scope="local")
    """
    check(tree, block, buffer, scope)
    old = buffer_touched(block, buffer)
    return Edit(with_buffer_changed(tree.function, old, old.with_(scope=scope)))


def check(tree: Tree, block: Block, buffer: BufferLike, scope: str) -> None:
    old = buffer_touched(block, buffer)
    what = f"cannot put {old.name} into scope {scope!r}"
    require(tree, what, scope_exists(scope), buffer_is_intermediate(tree, old))
