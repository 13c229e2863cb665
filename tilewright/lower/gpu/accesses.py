"""Which buffers statements read and write."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import (
    GROUP_PRODUCTS,
    WARP_PRODUCTS,
    Buffer,
    Call,
    Evaluate,
    Expr,
    Function,
    Stmt,
    Store,
    child_exprs,
    is_pure,
    loads_in,
    walk,
    walk_expr,
)


def touched_by(statements: Iterable[Stmt]) -> tuple[set[Buffer], set[Buffer]]:
    """The buffers that the statements themselves read and write, nested statements not included."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for stmt in statements:
        if isinstance(stmt, Store):
            writes.add(stmt.buffer)
        if isinstance(stmt, Evaluate) and not is_pure(stmt.call):
            read, written = _touched_by_call(stmt.call)
            reads |= read
            writes |= written
            continue
        for expr in child_exprs(stmt):
            reads.update(load.buffer for load in loads_in(expr))
    return reads, writes


def _touched_by_call(call: Expr) -> tuple[set[Buffer], set[Buffer]]:
    """The buffers that a call with side effects reads and writes; an unknown call may write all
    buffers whose addresses it gets."""
    addresses = [e for e in walk_expr(call) if isinstance(e, Call) and e.name == "address_of"]
    given = [loads_in(a.args[0])[0].buffer for a in addresses]
    reads = {load.buffer for load in loads_in(call)}
    name = call.name if isinstance(call, Call) else ""
    if name == "async_copy":
        # It takes effect at a later barrier, which has been placed already (`stages`).
        return reads - {given[0]}, set()
    if name in WARP_PRODUCTS or name in GROUP_PRODUCTS:
        return reads, {given[0]}
    return reads, set(given)


def access_of(kernel: Function) -> tuple[str, ...]:
    """How a kernel accesses each of its buffers: `r`, `w`, `rw`, or `` for not at all."""
    reads, writes = touched_by(walk(kernel.body))
    return tuple("r" * (b in reads) + "w" * (b in writes) for b in kernel.buffers)
