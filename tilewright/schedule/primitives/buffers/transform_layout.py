"""transform_layout(block, buffer, layout)"""

from __future__ import annotations

from tilewright.arith import AffineMap, Ranges, prove, simplify
from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    For,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    all_of,
    const,
    make_block,
    map_children,
    seq,
    unary,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_name, nest
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    buffer_is_used_in_blocks_only,
)
from tilewright.schedule.facts.place import outermost_statement
from tilewright.schedule.layout_text import parse_layout
from tilewright.schedule.writing import (
    BufferLike,
    buffer_touched,
    change_accesses,
    with_buffer_exchanged,
)
from tilewright.support.errors import UserError

Number = bool | int | float


def transform_layout(
    tree: Tree, block: Block, buffer: BufferLike, layout: str, pad_value: Number | None = None
) -> Edit:
    """Change the layout of a buffer: its shape, and all accesses to it.

    The layout of a parameter can change too: callers then pass arrays of the new shape. Elements to
    which no old one maps are set to `pad_value`; without it they stay undefined, and the function
    never accesses them (outputs must be fully defined, so there it is required).

        T[i, j] of f32[8, 64]      -->      T[j // 16, i, j % 16] of f32[4, 8, 16]
                                            for (i, j) -> (j // 16, i, j % 16)
    """
    check(tree, block, buffer, layout, pad_value)
    old, forward = buffer_touched(block, buffer), parse_layout(layout)
    new = old.with_(shape=forward.output_extents(old.shape), strides=None)
    ranges = Ranges.for_function(tree.function)
    body = _relaid(tree.function.body, old, new, forward, ranges)
    function = with_buffer_exchanged(tree.function.with_body(body), old, new)
    if pad_value is not None and _leaves_over(forward, old):
        after = Tree(function)
        first = (after.writers(new) or after.readers(new))[0]
        at = outermost_statement(after, first)
        function = after.replace(at, seq(_padding(after, forward, old, new, pad_value), at))
    return Edit(function)


def check(
    tree: Tree, block: Block, buffer: BufferLike, layout: str, pad_value: Number | None = None
) -> None:
    old, forward = buffer_touched(block, buffer), parse_layout(layout)
    what = f"cannot lay out {old.name} by {forward}"
    require(tree, what, _rank_fits(old, forward))
    require(
        tree,
        what,
        _is_compact(old),
        buffer_is_used_in_blocks_only(tree, old),
        _is_one_to_one(old, forward),
        _padding_can_be_filled(tree, old, forward, pad_value),
    )


def _rank_fits(buffer: Buffer, forward: AffineMap) -> Fault | None:
    if len(forward.inputs) == buffer.ndim:
        return None
    return Fault(f"it takes {len(forward.inputs)} indices, {buffer.name} has {buffer.ndim}")


def _is_compact(buffer: Buffer) -> Fault | None:
    if buffer.is_compact:
        return None
    return Fault(f"{buffer.name} has strides or an offset", "lay it out before storage_align")


def _is_one_to_one(buffer: Buffer, forward: AffineMap) -> Fault | None:
    if forward.left_inverse(buffer.shape) is None:
        return Fault(
            f"it is not clear that elements of {buffer.name} go to different places",
            "use a map made of permuted, split (//, %) and fused indices",
        )
    try:
        forward.output_extents(buffer.shape)
    except UserError as error:
        return Fault(str(error))
    return None


def _leaves_over(forward: AffineMap, buffer: Buffer) -> bool:
    return forward.inverse(buffer.shape) is None


def _padding_can_be_filled(
    tree: Tree, buffer: Buffer, forward: AffineMap, pad_value: Number | None
) -> Fault | None:
    if not _leaves_over(forward, buffer):
        return None
    if pad_value is None:
        return _is_no_output(tree, buffer, forward)
    if not tree.writers(buffer):
        return Fault(
            f"{buffer.name} is an input, so that nothing here can fill its padding",
            "use cache_read, and lay out the copy",
        )
    return None


def _is_no_output(tree: Tree, buffer: Buffer, forward: AffineMap) -> Fault | None:
    if buffer not in tree.function.buffers or not tree.writers(buffer):
        return None
    shape = ", ".join(str(e) for e in forward.output_extents(buffer.shape))
    return Fault(
        f"the new shape ({shape}) has more elements than {buffer.name}, which is an output",
        "give pad_value, which they are set to, or factors that divide the extents",
    )


def _relaid(stmt: Stmt, old: Buffer, new: Buffer, forward: AffineMap, ranges: Ranges) -> Stmt:
    """Rewrite all accesses to the new layout, block by block."""
    if not isinstance(stmt, Block):
        return map_children(stmt, lambda s: _relaid(s, old, new, forward, ranges))
    for it in stmt.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    return change_accesses(
        stmt,
        [old],
        lambda load: Load(new, forward.apply(load.indices, ranges), load.mask),
        lambda store: Store(
            new, forward.apply(store.indices, ranges), store.value, store.mask, store.span
        ),
    )


def _padding(tree: Tree, forward: AffineMap, old: Buffer, new: Buffer, value: Number) -> Stmt:
    """A block that fills the elements to which no old one maps."""
    back = forward.left_inverse(old.shape)
    assert back is not None
    loops = [For(Var(f"ax{n}"), e, "serial", seq()) for n, e in enumerate(new.shape)]
    iters = [Iter(Var(f"v{f.var.name}"), f.extent, "spatial") for f in loops]
    ranges = Ranges.for_function(tree.function)
    for loop in loops:
        ranges = ranges.with_extent(loop.var, loop.extent)
    place = [f.var for f in loops]
    source = back.apply(place, ranges)
    met = [c for s, e in zip(source, old.shape, strict=True) for c in (s >= 0, s < e)]
    met += [Binary("eq", a, b) for a, b in zip(forward.apply(source), place, strict=True)]
    needed = [c for c in met if not prove(c, ranges)]
    fill = make_block(
        fresh_name(f"{new.name}_pad", tree.blocks),
        iters,
        place,
        Store(new, tuple(it.var for it in iters), const(value, new.dtype)),
        predicate=simplify(unary("not", all_of(*needed)), ranges),
    )
    return nest(loops, fill)
