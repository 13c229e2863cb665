"""Dissolve blocks into plain statements.

block C(vi = i * 4 + j): where(i * 4 + j < 10); C[vi] = …
-->
if i * 4 + j < 10: C[i * 4 + j] = …

A block that passes addresses to instructions is opaque: only its regions declare what it accesses.
It stays until buffers have their final sizes.
"""

from __future__ import annotations

from tilewright.ir import (
    TRUE,
    Block,
    Evaluate,
    Function,
    If,
    Stmt,
    map_function,
    substitute_stmt,
    walk,
)


def lower_blocks(function: Function) -> Function:
    """Dissolve all but opaque blocks; their variables are replaced by what they were bound to."""
    return map_function(function, lambda s: None if is_opaque(s) else _dissolve(s))


def lower_opaque_blocks(function: Function) -> Function:
    """Dissolve the remaining, opaque blocks."""
    return map_function(function, _dissolve)


def is_opaque(stmt: Stmt) -> bool:
    """Whether a block is tensorized by instructions that take addresses."""
    is_tensorized = isinstance(stmt, Block) and "tensor_intrin" in stmt.annotations
    return is_tensorized and any(isinstance(s, Evaluate) for s in walk(stmt))


def _dissolve(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Block):
        return None
    values = {it.var: b for it, b in zip(stmt.iters, stmt.bindings, strict=True)}
    body = substitute_stmt(stmt.body, values)
    return body if stmt.predicate is TRUE else If(stmt.predicate, body)
