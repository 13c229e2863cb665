"""What a piece of a function takes from around it, where it becomes a function of its own."""

from __future__ import annotations

from tilewright.ir import Alloc, Buffer, Load, Stmt, Store, Var, all_exprs, symbolic_dims, walk


def used_by(body: Stmt) -> tuple[list[Var], list[Buffer]]:
    """Variables and buffers that `body` uses, in the order in which it does."""
    buffers: dict[Buffer, None] = {}
    variables: dict[Var, None] = {}
    for stmt in walk(body):
        if isinstance(stmt, Store):
            buffers.setdefault(stmt.buffer)
        if isinstance(stmt, Alloc):
            variables.update(dict.fromkeys(symbolic_dims(stmt.buffers)))
    for expr in all_exprs(body):
        if isinstance(expr, Load):
            buffers.setdefault(expr.buffer)
        elif isinstance(expr, Var):
            variables.setdefault(expr)
    return list(variables), list(buffers)
