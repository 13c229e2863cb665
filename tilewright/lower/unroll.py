"""Write unrolled loops out.

for i in unrolled(2): A[i] = 0
-->
A[0] = 0; A[1] = 0

Shared memory of GPUs is scarce: all iterations use the same one, one after the other.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Alloc,
    Buffer,
    Const,
    For,
    Function,
    Stmt,
    const,
    map_function,
    renew,
    seq,
    walk,
)

#: A loop that would grow beyond this many statements stays a loop.
_LIMIT = 4096


def unroll(function: Function) -> Function:
    """Unroll loops; those of unknown extent, or that grow too large, become serial."""
    return map_function(function, _write_out)


def _write_out(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind != "unrolled":
        return None
    if not isinstance(stmt.extent, Const) or _is_too_large(stmt, int(stmt.extent.value)):
        return replace(stmt, kind="serial")
    body, shared = _without_shared(stmt.body)
    copies = seq(*(renew(body, {stmt.var: const(k)}) for k in range(int(stmt.extent.value))))
    return Alloc(shared, copies) if shared else copies


def _without_shared(body: Stmt) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The body of a loop without the shared memory that it allocates first."""
    if not isinstance(body, Alloc):
        return body, ()
    shared = tuple(b for b in body.buffers if b.scope == "shared")
    rest = tuple(b for b in body.buffers if b.scope != "shared")
    if not shared:
        return body, ()
    return (replace(body, buffers=rest) if rest else body.body), shared


def _is_too_large(loop: For, copies: int) -> bool:
    return copies * sum(1 for _ in walk(loop.body)) > _LIMIT
