"""Buffers in several versions, so that iterations of a loop can overlap."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Block,
    Buffer,
    Expr,
    For,
    Function,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    const,
    walk,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.block_facts import (
    buffer_is_intermediate,
    buffer_is_used_in_blocks_only,
)
from tilewright.schedule.facts.flow import (
    values_stay_in_iterations,
)
from tilewright.schedule.writing import change_accesses, with_buffer_exchanged


def buffer_can_have_versions(tree: Tree, loop: For, buffer: Buffer) -> Fault | None:
    """Each iteration of `loop` can have its own version of a buffer."""
    return (
        buffer_is_intermediate(tree, buffer)
        or buffer_is_used_in_blocks_only(tree, buffer)
        or values_stay_in_iterations(tree, loop, buffer)
        or _blocks_are_simple(tree, buffer)
    )


def _blocks_are_simple(tree: Tree, buffer: Buffer) -> Fault | None:
    for block in (*tree.readers(buffer), *tree.writers(buffer)):
        if any(isinstance(s, Block) and s is not block for s in walk(block)):
            return Fault(f"block {block.name} holds other blocks", "do this before", block)
        if buffer.strides is not None:
            return Fault(f"{buffer.name} has strides", "do this before storage_align", block)
    return None


def with_versions(tree: Tree, loop: For, buffer: Buffer, count: int) -> Function:
    """`count` versions of the buffer, which the iterations of `loop` use cyclically."""
    versions = buffer.with_(shape=(const(count), *buffer.shape))
    touching = {*tree.readers(buffer), *tree.writers(buffer)}
    changes: dict[Stmt, Stmt] = {
        block: _with_version(block, loop.var % count, buffer, versions) for block in touching
    }
    return with_buffer_exchanged(tree.replace_all(changes), buffer, versions)


def _with_version(block: Block, version: Expr, buffer: Buffer, versions: Buffer) -> Block:
    """`block` with one more iterator: the version that it uses."""
    var = Var(f"v{buffer.name}_version", version.dtype)
    changed = change_accesses(
        replace(
            block,
            iters=(*block.iters, Iter(var, versions.shape[0], "spatial")),
            bindings=(*block.bindings, version),
        ),
        [buffer],
        lambda load: Load(versions, (var, *load.indices), load.mask),
        lambda s: Store(versions, (var, *s.indices), s.value, s.mask, s.span),
    )
    assert isinstance(changed, Block)
    return changed
