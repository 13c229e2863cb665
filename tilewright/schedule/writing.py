"""The stores of a block, and accesses to buffers redirected to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    Function,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    map_expr,
    map_stmt,
    replace_buffers,
    substitute,
    with_inferred_regions,
)
from tilewright.schedule.cursor import buffers_touched
from tilewright.schedule.error import Fault
from tilewright.support.errors import UserError, nearest

#: A buffer as users give it: by name, by position among what a block accesses, or itself.
BufferLike = Buffer | str | int


class Written(NamedTuple):
    """buffer[indices] = value, with lets inlined into the value."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


def stores_of(block: Block) -> list[Written] | Fault:
    """The stores of a body `let … let store … store`, each to a different buffer."""
    plain = Fault(
        f"the body of block {block.name} does more than to store one value into each buffer",
        "",
        block,
    )
    body, values = block.body, dict[Var, Expr]()
    while isinstance(body, Let):
        values[body.var] = substitute(body.value, values)
        body = body.body
    found: list[Written] = []
    for stmt in body.statements if isinstance(body, Seq) else (body,):
        if not isinstance(stmt, Store) or stmt.mask is not None:
            return plain
        indices = tuple(substitute(i, values) for i in stmt.indices)
        found.append(Written(stmt.buffer, indices, substitute(stmt.value, values)))
    distinct = {w.buffer for w in found}
    return found if len(distinct) == len(found) else plain


# ---- choosing a buffer --------------------------------------------------------------------------


def buffer_read(block: Block, buffer: BufferLike) -> Buffer:
    """The buffer that a user refers to among those that `block` reads."""
    reads, writes = buffers_touched(block)
    return _chosen(block, buffer, [b for b in reads if b not in writes], "reads")


def buffer_written(block: Block, buffer: BufferLike) -> Buffer:
    """The buffer that a user refers to among those that `block` writes."""
    _, writes = buffers_touched(block)
    return _chosen(block, buffer, list(writes), "writes")


def buffer_touched(block: Block, buffer: BufferLike) -> Buffer:
    """The buffer that a user refers to among those that `block` writes or reads."""
    reads, writes = buffers_touched(block)
    return _chosen(block, buffer, list(dict.fromkeys((*writes, *reads))), "uses")


def _chosen(block: Block, wanted: BufferLike, among: list[Buffer], verb: str) -> Buffer:
    if isinstance(wanted, Buffer):
        wanted = wanted.name
    if isinstance(wanted, int):
        if 0 <= wanted < len(among):
            return among[wanted]
        raise UserError(f"block {block.name} {verb} {len(among)} buffers, number {wanted} is none")
    found = [b for b in among if b.name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"block {block.name} {verb} {len(found)} buffers called {wanted}",
            remedy="name it by its position",
        )
    raise UserError(
        f"block {block.name} {verb} no buffer {wanted}",
        remedy=nearest(str(wanted), (b.name for b in among)),
    )


# ---- redirecting accesses -----------------------------------------------------------------------


def change_accesses(
    root: Stmt,
    buffers: Iterable[Buffer],
    on_load: Callable[[Load], Expr | None],
    on_store: Callable[[Store], Stmt | None] = lambda _: None,
) -> Stmt:
    """`root` with loads and stores of some buffers rewritten, and regions recomputed."""
    changed = set(buffers)
    memo: dict[Expr, Expr] = {}

    def on_node(e: Expr) -> Expr | None:
        return on_load(e) if isinstance(e, Load) and e.buffer in changed else None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in changed:
            return on_store(s)
        return _refreshed(s, changed) if isinstance(s, Block) else None

    return map_stmt(root, on_stmt, lambda e: map_expr(e, on_node, memo))


def redirect(root: Stmt, buffers: Mapping[Buffer, Buffer]) -> Stmt:
    """`root` with accesses to some buffers redirected to others of the same shape."""
    return change_accesses(
        root,
        buffers,
        lambda load: Load(buffers[load.buffer], load.indices, load.mask),
        lambda store: replace(store, buffer=buffers[store.buffer]),
    )


def _refreshed(block: Block, changed: set[Buffer]) -> Block | None:
    touched = {r.buffer for r in (*block.reads, *block.writes)}
    if touched.isdisjoint(changed):
        return None
    return with_inferred_regions(block)


# ---- buffers of the function --------------------------------------------------------------------


def with_buffer_changed(function: Function, old: Buffer, new: Buffer) -> Function:
    """`new`, of the same rank, in place of `old` everywhere."""
    params = tuple(new if p is old else p for p in function.params)
    return replace(function, params=params, body=replace_buffers(function.body, {old: new}))


def with_buffer_exchanged(function: Function, old: Buffer, new: Buffer) -> Function:
    """`new` in place of `old` among parameters and allocations; accesses are unchanged."""
    params = tuple(new if p is old else p for p in function.params)
    body = map_stmt(function.body, lambda s: _reallocated(s, old, (new,)))
    return replace(function, params=params, body=body)


def without_buffer(function: Function, buffer: Buffer) -> Function:
    """The function without an allocation."""
    return function.with_body(map_stmt(function.body, lambda s: _reallocated(s, buffer, ())))


def _reallocated(stmt: Stmt, old: Buffer, new: tuple[Buffer, ...]) -> Stmt | None:
    if not isinstance(stmt, Alloc) or old not in stmt.buffers:
        return None
    kept = tuple(b for one in stmt.buffers for b in (new if one is old else (one,)))
    return replace(stmt, buffers=kept) if kept else stmt.body
