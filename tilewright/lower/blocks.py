"""Dissolve blocks into plain statements.

block C(vi = i * 4 + j): where(i * 4 + j < 10); C[vi] = …
-->
if i * 4 + j < 10: C[i * 4 + j] = …
"""

from __future__ import annotations

from tilewright.ir import TRUE, Block, Function, If, Stmt, map_function, substitute_stmt


def lower_blocks(function: Function) -> Function:
    """No block is left; the variables of a block are replaced by what they were bound to."""
    return map_function(function, _dissolve)


def _dissolve(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Block):
        return None
    values = {it.var: b for it, b in zip(stmt.iters, stmt.bindings, strict=True)}
    body = substitute_stmt(stmt.body, values)
    return body if stmt.predicate is TRUE else If(stmt.predicate, body)
