"""replicate(block, count, readers)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.arith import prove
from tilewright.ir import Block, Buffer, Expr, For, Iter, Load, Stmt, Store, Var, const
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_has_no_effects,
    buffer_is_intermediate,
    buffer_is_used_in_blocks_only,
)
from tilewright.schedule.handles import Loop
from tilewright.schedule.layout_text import parse_layout
from tilewright.schedule.writing import change_accesses, with_buffer_exchanged

#: Names of blocks, and which copy each one reads, as a function of its iterators.
Readers = Sequence[tuple[str, str]]


def replicate(tree: Tree, block: Block, count: int, readers: Readers = ()) -> Edit:
    """Write several copies of a buffer, and choose which one each reader reads; 0 by default.

    for i: M[i] = A[i] * 2              -->      for i: for c in 4: M[i, c] = A[i] * 2
    for i, j: P[i, j] = B[i, j] - M[i]           for i, j: P[i, j] = B[i, j] - M[i, j % 4]

    Gives the new loop of each block that writes the buffer.
    """
    check(tree, block, count, readers)
    old = block.writes[0].buffer
    new = old.with_(shape=(*old.shape, const(count)), strides=None)
    changes: dict[Stmt, Stmt] = {}
    loops: list[Loop] = []
    for writer in tree.writers(old):
        loop, changes[writer] = _written(writer, old, new, count)
        loops.append(loop)
    for reader in tree.readers(old):
        if reader not in changes:
            changes[reader] = _read(reader, old, new, _copy(reader, readers))
    function = tree.replace_all(changes)
    return Edit(with_buffer_exchanged(function, old, new), tuple(loops))


def check(tree: Tree, block: Block, count: int, readers: Readers = ()) -> None:
    what = f"cannot replicate what block {block.name} writes"
    require(tree, what, None if len(block.writes) == 1 else Fault("that is not one buffer", ""))
    buffer = block.writes[0].buffer
    require(
        tree,
        what,
        None if count > 0 else Fault("there are no copies", "keep one at least"),
        buffer_is_intermediate(tree, buffer),
        buffer_is_used_in_blocks_only(tree, buffer),
        _has_no_strides(buffer),
        *(block_has_no_effects(b) for b in (*tree.writers(buffer), *tree.readers(buffer))),
        *(_copy_exists(tree, name, text, count) for name, text in readers),
    )


def _has_no_strides(buffer: Buffer) -> Fault | None:
    if buffer.is_compact:
        return None
    return Fault(f"{buffer.name} has strides or an offset", "replicate it before storage_align")


def _copy_exists(tree: Tree, name: str, text: str, count: int) -> Fault | None:
    reader = tree.blocks.get(name)
    if reader is None:
        return Fault(f"there is no block {name} to read copies", "")
    ranges = tree.ranges_at(reader)
    for it in reader.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    index = _copy(reader, [(reader.name, text)])
    if isinstance(index, Fault):
        return index
    if prove(index >= 0, ranges) and prove(index < count, ranges):
        return None
    return Fault(f"block {reader.name} may read a copy that is none", "", reader)


def _copy(reader: Block, readers: Readers) -> Expr | Fault:
    """The index of the copy that a block reads."""
    text = next((given for name, given in readers if name == reader.name), None)
    if text is None:
        return const(0)
    forward = parse_layout(text)
    if len(forward.inputs) != len(reader.iters):
        return Fault(f"block {reader.name} has {len(reader.iters)} iterators", "", reader)
    return forward.apply([it.var for it in reader.iters])[0]


# ---- the edit -----------------------------------------------------------------------------------


def _written(block: Block, old: Buffer, new: Buffer, count: int) -> tuple[Loop, Stmt]:
    var, own = Var("copy"), Var("vcopy")
    more = replace(
        block,
        iters=(*block.iters, Iter(own, const(count), "spatial")),
        bindings=(*block.bindings, var),
    )
    made = change_accesses(
        more,
        [old],
        lambda load: Load(new, (*load.indices, own), load.mask),
        lambda store: Store(new, (*store.indices, own), store.value, store.mask, store.span),
    )
    return Loop(var), For(var, const(count), "serial", made, span=block.span)


def _read(block: Block, old: Buffer, new: Buffer, index: Expr | Fault) -> Stmt:
    assert not isinstance(index, Fault)
    return change_accesses(block, [old], lambda load: Load(new, (*load.indices, index), load.mask))
