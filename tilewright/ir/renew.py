"""Copies statements for use at a second place, with new variables, buffers and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.stmt import Alloc, Block, For, Let, Stmt, Store
from tilewright.ir.visit import map_children, map_expr, substitute, walk


def renew(root: Stmt, values: Mapping[Var, Expr] | None = None) -> Stmt:
    """A copy of `root` that shares no statement with it; `values` replaces free variables.

    Whatever `root` itself binds (loop, block and let variables, allocated buffers) is bound anew.
    """
    variables: dict[Var, Expr] = dict(values or {})
    buffers: dict[Buffer, Buffer] = {}
    for stmt in walk(root):
        for var in bound_by(stmt):
            variables[var] = Var(var.name, var.dtype)
    substituted: dict[Expr, Expr] = {}
    redirected: dict[Expr, Expr] = {}

    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in buffers:
            return Load(buffers[e.buffer], e.indices, e.mask)
        return None

    def on_expr(e: Expr) -> Expr:
        e = substitute(e, variables, substituted)
        return map_expr(e, on_node, redirected) if buffers else e

    return _copy(root, variables, buffers, on_expr)


def bound_by(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that `stmt` itself binds."""
    if isinstance(stmt, For | Let):
        return (stmt.var,)
    return tuple(it.var for it in stmt.iters) if isinstance(stmt, Block) else ()


def _copy(
    stmt: Stmt,
    variables: Mapping[Var, Expr],
    buffers: dict[Buffer, Buffer],
    on_expr: Callable[[Expr], Expr],
) -> Stmt:
    """A copy of `stmt`; `buffers` gets the copies of those it allocates."""
    if isinstance(stmt, Alloc):
        for b in stmt.buffers:
            buffers[b] = b.with_(shape=[on_expr(d) for d in b.shape])
    mapped = map_children(stmt, lambda s: _copy(s, variables, buffers, on_expr), on_expr)
    return _rebind(mapped, variables, buffers)


def _rebind(stmt: Stmt, variables: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer]) -> Stmt:
    if isinstance(stmt, For | Let):
        return replace(stmt, var=variables[stmt.var])
    if isinstance(stmt, Alloc):
        return replace(stmt, buffers=tuple(buffers[b] for b in stmt.buffers))
    if isinstance(stmt, Store):
        buffer = buffers.get(stmt.buffer, stmt.buffer)
        return Store(buffer, stmt.indices, stmt.value, stmt.mask, stmt.span)
    if isinstance(stmt, Block):
        iters = tuple(it._replace(var=variables[it.var]) for it in stmt.iters)
        reads, writes = (
            tuple(r._replace(buffer=buffers.get(r.buffer, r.buffer)) for r in regions)
            for regions in (stmt.reads, stmt.writes)
        )
        return replace(stmt, iters=iters, reads=reads, writes=writes)
    return replace(stmt)  # type: ignore[type-var]
