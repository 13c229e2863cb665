"""The variables and buffers that an outlined part of a function captures."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import (
    Alloc,
    Buffer,
    Function,
    Load,
    Stmt,
    Store,
    Var,
    all_exprs,
    symbolic_dims,
    walk,
)


def buffers_of(function: Function) -> Iterator[Buffer]:
    """The parameter buffers of a function, and the buffers it allocates."""
    yield from function.buffers
    for stmt in walk(function.body):
        if isinstance(stmt, Alloc):
            yield from stmt.buffers


def used_by(body: Stmt) -> tuple[list[Var], list[Buffer]]:
    """Variables and buffers that `body` uses, in order of first use."""
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
