"""Write unrolled loops out.

for i in unrolled(2): A[i] = 0
-->
A[0] = 0; A[1] = 0
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Const, For, Function, Stmt, const, map_function, renew, seq, walk

#: A loop that would grow beyond this many statements stays a loop.
_LIMIT = 4096


def unroll(function: Function) -> Function:
    """No unrolled loop is left; one of unknown extent, or that grows too large, runs serially."""
    return map_function(function, _write_out)


def _write_out(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind != "unrolled":
        return None
    if not isinstance(stmt.extent, Const) or _is_too_large(stmt, int(stmt.extent.value)):
        return replace(stmt, kind="serial")
    return seq(*(renew(stmt.body, {stmt.var: const(k)}) for k in range(int(stmt.extent.value))))


def _is_too_large(loop: For, copies: int) -> bool:
    return copies * sum(1 for _ in walk(loop.body)) > _LIMIT
