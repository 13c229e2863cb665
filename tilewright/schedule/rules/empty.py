"""What runs over no element needs no schedule.

    for i in range(0): for j in range(8): block T(…)
    for i in range(4): block C(…)
    -->
    for i in range(4): block C(…)

A reduction over nothing stays: it stores what it starts with.
"""

from __future__ import annotations

from tilewright.ir import Block, For, Function, Seq, Stmt, map_function, seq
from tilewright.schedule.rules.analysis import extent_of


def drop_empty(function: Function) -> Function:
    """`function` without blocks that never run."""
    return map_function(function, _without_empty)


def _without_empty(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, Block):
        never = any(it.kind != "reduce" and extent_of(it) == 0 for it in stmt.iters)
        return seq() if never else None
    if isinstance(stmt, For):
        return stmt.body if isinstance(stmt.body, Seq) and not stmt.body.statements else None
    if isinstance(stmt, Seq) and any(isinstance(s, Seq) for s in stmt.statements):
        return seq(*stmt.statements)
    return None
