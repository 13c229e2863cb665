"""Copies between a buffer and one that replaces it: where to insert them, what they copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tilewright.arith import Ranges
from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    DType,
    Expr,
    For,
    Function,
    Iter,
    Load,
    Range,
    Stmt,
    Store,
    Var,
    const,
    make_block,
    substitute,
    walk,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import fresh_name
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.access import RegionAccess, accesses_of
from tilewright.schedule.facts.block_facts import (
    loops_cover_the_domain,
)
from tilewright.schedule.facts.boxes import (
    Box,
    box_around,
    box_is_full,
    ranges_inside,
    spread,
    under_loops,
)
from tilewright.schedule.facts.flow import (
    is_unfinished_along,
)
from tilewright.schedule.facts.place import (
    comes_before,
    common_ancestor,
    loops_between,
    outermost,
    outermost_statement,
    variables,
)


class InsertionPoint(NamedTuple):
    """A place in the program: next to the statement `at`, in the body of the loop `inside`."""

    at: Stmt
    inside: For | None


# ---- where --------------------------------------------------------------------------------------


def site_before(tree: Tree, block: Block, buffer: Buffer) -> InsertionPoint | Fault:
    """The outermost place before `block` at which all it reads of `buffer` has been written."""
    at = outermost_statement(tree, block)
    for writer in outermost(tree, tree.writers(buffer)):
        met = common_ancestor(tree, writer, block)
        if met is None or not comes_before(tree, writer, block):
            return Fault(
                f"block {writer.name} writes {buffer.name} after block {block.name} has read it",
                "",
                writer,
            )
        at = met.second if tree.is_above(at, met.second) else at
    return InsertionPoint(at, _loop_around(tree, at))


def site_after(tree: Tree, block: Block, buffer: Buffer) -> InsertionPoint | Fault:
    """The outermost place after `block` and before all other readers of `buffer`."""
    at = outermost_statement(tree, block)
    for reader in outermost(tree, tree.readers(buffer)):
        if reader is block:
            continue
        met = common_ancestor(tree, block, reader)
        if met is None or not comes_before(tree, block, reader):
            return Fault(
                f"block {reader.name} reads {buffer.name} before block {block.name} writes it",
                "",
                reader,
            )
        at = met.first if tree.is_above(at, met.first) else at
    site = InsertionPoint(at, _loop_around(tree, at))
    return _unfinished(tree, block, site) or site


def _unfinished(tree: Tree, block: Block, site: InsertionPoint) -> Fault | None:
    """Why values there are not final, or the copy would read more than was written; else None."""
    inside = site.inside
    if inside is not None and is_unfinished_along(block, [*tree.loops_above(inside), inside]):
        reason = f"block {block.name} is read before its reduction along the loops has ended"
        return Fault(reason, "", block)
    instances = RegionAccess(block, block.writes[0].buffer, _instances(block), True)
    if box_is_full(tree, instances, inside):
        return None
    if inside is None:
        return loops_cover_the_domain(tree, block)
    reason = f"what an iteration of loop {inside.var.name} writes is no box"
    return Fault(reason, "do this before loops are fused", inside)


def _loop_around(tree: Tree, stmt: Stmt) -> For | None:
    return next((s for s in tree.ancestors(stmt) if isinstance(s, For)), None)


def _instances(block: Block) -> tuple[Range, ...]:
    """The spatial part of the instance that the loops run, as a box of one element."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return tuple(Range(value, const(1)) for it, value in pairs if it.kind != "reduce")


# ---- what ---------------------------------------------------------------------------------------


def copy_by_element(
    tree: Tree, site: InsertionPoint, block: Block, source: Buffer, target: Buffer, name: str
) -> Stmt:
    """target[…] = source[…] for what `block` reads while the loops inside the site run."""
    box = box_around(tree, [a for a in accesses_of(block) if a.buffer is source], site.inside)
    iters = [
        Iter(Var(f"vax{number}"), extent, "spatial") for number, extent in enumerate(source.shape)
    ]
    indices = tuple(it.var for it in iters)
    wanted = _by_iterator(iters, box)
    body = Store(target, indices, source[indices])
    return _under_loops(tree, site, name, iters, body, wanted)


def copy_by_instance(
    tree: Tree,
    site: InsertionPoint,
    block: Block,
    used: Sequence[Iter],
    store: Callable[[Mapping[Var, Expr]], Store],
    name: str,
) -> Stmt:
    """One store for each value of some iterators of `block` while the loops inside the site run.

    Iterators that are not `block`'s take all of their values.
    """
    iters = [it._replace(var=Var(it.var.name, it.var.dtype), kind="spatial") for it in used]
    own: dict[Var, Expr] = {it.var: new.var for it, new in zip(used, iters, strict=True)}
    over = variables(loops_between(tree, site.inside, block))
    ranges = tree.ranges_at(block)
    bound = dict(zip((it.var for it in block.iters), block.bindings, strict=True))
    box = tuple(
        spread(Range(bound[it.var], const(1)), over, ranges) if it.var in bound else None
        for it in used
    )
    return _under_loops(tree, site, name, iters, store(own), _by_iterator(iters, box))


def element_by_element(
    tree: Tree, name: str, source: Buffer, target: Buffer, value: Callable[[Load], Expr]
) -> Stmt:
    """target[…] = value(source[…]) for a whole buffer, in new loops."""
    iters = [Iter(Var(f"vax{n}"), extent, "spatial") for n, extent in enumerate(source.shape)]
    place = tuple(it.var for it in iters)
    body = Store(target, place, value(Load(source, place)))
    block = make_block(name, iters, place, body)
    return under_loops(block, {}, Ranges.for_function(tree.function)).nest


def _by_iterator(iters: Sequence[Iter], box: Box) -> dict[Var, Range]:
    return {it.var: part for it, part in zip(iters, box, strict=True) if part is not None}


def _under_loops(
    tree: Tree,
    site: InsertionPoint,
    name: str,
    iters: Sequence[Iter],
    body: Stmt,
    wanted: Mapping[Var, Range],
) -> Stmt:
    copy = make_block(name, iters, [it.extent for it in iters], body)
    return under_loops(copy, wanted, ranges_inside(tree, site.inside)).nest


def at_indices(indices: Sequence[Expr], own: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    """Indices in terms of the iterators of a copy."""
    return tuple(substitute(i, own) for i in indices)


# ---- names --------------------------------------------------------------------------------------


def stand_in(tree: Tree, buffer: Buffer, suffix: str, **changes: object) -> Buffer:
    """A new compact buffer to replace another one."""
    taken = {b.name for b in all_buffers(tree.function)}
    fields = {"strides": None, "offset": 0, "scope": "global", **changes}
    return buffer.with_(name=fresh_name(f"{buffer.name}_{suffix}", taken), **fields)


def new_buffer(tree: Tree, name: str, dtype: DType, shape: Sequence[Expr]) -> Buffer:
    """A new buffer, named `name` if that is free."""
    taken = {b.name for b in all_buffers(tree.function)}
    return Buffer(fresh_name(name, taken), dtype, shape)


def stage_name(tree: Tree, buffer: Buffer) -> str:
    return fresh_name(buffer.name, tree.blocks)


def all_buffers(function: Function) -> list[Buffer]:
    """The parameters and all allocations."""
    allocs = (s for s in walk(function.body) if isinstance(s, Alloc))
    return [*function.buffers, *(b for alloc in allocs for b in alloc.buffers)]
