"""Groups stores of a sequence whose instructions are to be interleaved.

    Y[0:4] = f(X[0:4]); Y[4:8] = f(X[4:8])

Where f is a long chain of dependent operations, a processor whose out-of-order window is shorter
than the chain computes one vector after the other, and LLVM, which schedules for low register
pressure, keeps that order.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import Expr, Load, Stmt, Store, walk_expr
from tilewright.target import Target


def interleaved(statements: Iterable[Stmt], target: Target) -> list[Stmt | list[Store]]:
    """The statements in order, with stores to be interleaved grouped into lists."""
    most, least = target.chains, target.timing.interleaved_chain
    groups: list[Stmt | list[Store]] = []
    for statement in statements:
        last = groups[-1] if groups else None
        if not isinstance(statement, Store):
            groups.append(statement)
        elif isinstance(last, list) and len(last) < most and _joins(statement, last, least):
            last.append(statement)
        else:
            groups.append([statement])
    return groups


def _joins(store: Store, group: list[Store], least: int) -> bool:
    """Whether a store can join the group: the same buffer, which its value does not read, and
    chains of at least `least` operations."""
    last = group[-1]
    if store.buffer is not last.buffer or _reads_own(store):
        return False
    return all(v.dtype.is_vector and _chain(v) >= least for v in (store.value, last.value))


def _reads_own(store: Store) -> bool:
    return any(isinstance(e, Load) and e.buffer is store.buffer for e in walk_expr(store.value))


def _chain(root: Expr) -> int:
    """The length of the longest chain of dependent operations on vectors."""
    lengths: dict[Expr, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        operands = () if isinstance(node, Load) else node.operands
        missing = [o for o in operands if o.dtype.is_vector and o not in lengths]
        if missing:
            pending.extend(missing)
            continue
        lengths[pending.pop()] = 1 + max((lengths.get(o, 0) for o in operands), default=0)
    return lengths[root]
