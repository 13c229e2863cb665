"""Place barriers between phases that access the same memory, if one of them writes.

    for t in thread(16, "threadIdx.x"): S[t] = A[t]
    for t in thread(16, "threadIdx.x"): B[t] = S[15 - t]
    -->
    for t in thread(16, "threadIdx.x"): S[t] = A[t]
    barrier()
    for t in thread(16, "threadIdx.x"): B[t] = S[15 - t]

The buffers that threads have accessed since the last barrier are tracked from statement to
statement. A barrier goes right before the first statement that conflicts with them; in loops, also
with accesses of the previous iteration. Local memory needs none, nor do statements outside phases,
which only the first thread executes. Waits between threads of different blocks are placed elsewhere
(`merge_launches`). Conditions, extents and named values outside phases are read by all threads.
Distinct buffers do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.ir import (
    Alloc,
    Buffer,
    Const,
    For,
    Function,
    If,
    Let,
    Seq,
    Stmt,
    While,
    barrier,
    is_barrier,
    is_const,
    is_grid_barrier,
    is_over_blocks,
    is_over_threads,
    map_children,
    seq,
    walk,
)
from tilewright.lower.gpu.accesses import touched_by

#: An access: a buffer, and whether only the first thread makes it.
_Access = tuple[Buffer, bool]


@dataclass(frozen=True)
class _Touched:
    """Accesses to buffers that threads share: reads and writes."""

    reads: frozenset[_Access] = frozenset()
    writes: frozenset[_Access] = frozenset()

    def __or__(self, other: _Touched) -> _Touched:
        return _Touched(self.reads | other.reads, self.writes | other.writes)

    def conflicts(self, other: _Touched) -> bool:
        return _meet(self.writes, other.reads | other.writes) or _meet(self.reads, other.writes)


def _meet(before: frozenset[_Access], after: frozenset[_Access]) -> bool:
    """Whether a buffer is in both, unless only the same single thread accesses it."""
    return any(a is b and not (alone and first) for a, alone in before for b, first in after)


_NOTHING = _Touched()


def place_barriers(function: Function) -> Function:
    """Insert barriers, so that no phases between two of them conflict."""
    return function.with_body(_in_launches(function.body))


def _in_launches(stmt: Stmt) -> Stmt:
    if is_over_blocks(stmt):
        return _in_launch(stmt)
    return map_children(stmt, _in_launches)


def _in_launch(stmt: Stmt) -> Stmt:
    if is_over_blocks(stmt):
        return map_children(stmt, _in_launch)
    return _place(stmt, _NOTHING)[0]


def _place(stmt: Stmt, pending: _Touched) -> tuple[Stmt, _Touched]:
    """`stmt` with barriers, given the accesses since the last one; gives also those after it."""
    if is_barrier(stmt) or is_grid_barrier(stmt):
        return stmt, _NOTHING
    if isinstance(stmt, Seq):
        return _place_row(stmt, pending)
    if isinstance(stmt, Alloc):
        body, after = _place(stmt.body, pending)
        return _with_body(stmt, body), after
    if is_over_threads(stmt) or not isinstance(stmt, For | If | Let | While):
        own = _touched_by(walk(stmt), alone=_is_of_one_thread(stmt))
        return _place_before(stmt, own, pending)
    head = _touched_by([stmt])
    if pending.conflicts(head) or (
        isinstance(stmt, For | While) and _waits_more(stmt, head, pending | head)
    ):
        placed, after = _inside(stmt, head)
        return seq(barrier(), placed), after
    return _inside(stmt, pending | head)


def _waits_more(loop: For | While, usual: _Touched, pending: _Touched) -> bool:
    """Whether a loop gets barriers for its first iteration only, due to accesses before it."""
    if usual == pending:
        return False
    return _count(_place_repeated(loop, pending)[0]) > _count(_place_repeated(loop, usual)[0])


def _count(stmt: Stmt) -> int:
    return sum(map(is_barrier, walk(stmt)))


def _place_before(stmt: Stmt, own: _Touched, pending: _Touched) -> tuple[Stmt, _Touched]:
    if pending.conflicts(own):
        return seq(barrier(), stmt), own
    return stmt, pending | own


def _place_row(stmt: Seq, pending: _Touched) -> tuple[Stmt, _Touched]:
    placed: list[Stmt] = []
    for child in stmt.statements:
        done, pending = _place(child, pending)
        placed.append(done)
    same = all(a is b for a, b in zip(placed, stmt.statements, strict=True))
    return (stmt if same else seq(*placed)), pending


def _inside(stmt: For | If | Let | While, pending: _Touched) -> tuple[Stmt, _Touched]:
    """A statement with barriers between the statements that it contains."""
    if isinstance(stmt, If):
        then, after = _place(stmt.then, pending)
        if stmt.otherwise is None:
            return _with_parts(stmt, then, None), pending | after
        otherwise, after_other = _place(stmt.otherwise, pending)
        return _with_parts(stmt, then, otherwise), after | after_other
    if isinstance(stmt, Let):
        body, after = _place(stmt.body, pending)
        return _with_body(stmt, body), after
    body, after = _place_repeated(stmt, pending)
    surely = isinstance(stmt, For) and isinstance(stmt.extent, Const) and stmt.extent.value > 0
    return _with_body(stmt, body), after if surely else pending | after


def _place_repeated(stmt: For | While, pending: _Touched) -> tuple[Stmt, _Touched]:
    """The body of a loop, which also follows the accesses at its own end."""
    while True:
        body, after = _place(stmt.body, pending)
        if isinstance(stmt, While):
            # The next iteration begins by reading the condition.
            head = _touched_by([stmt])
            if after.conflicts(head):
                body, after = seq(body, barrier()), _NOTHING
            after |= head
        if after | pending == pending:
            return body, after
        pending |= after


def _with_body(stmt: For | Let | While | Alloc, body: Stmt) -> Stmt:
    return stmt if body is stmt.body else replace(stmt, body=body)


def _with_parts(stmt: If, then: Stmt, otherwise: Stmt | None) -> If:
    if then is stmt.then and otherwise is stmt.otherwise:
        return stmt
    return replace(stmt, then=then, otherwise=otherwise)


def _is_of_one_thread(stmt: Stmt) -> bool:
    loops = [s for s in walk(stmt) if isinstance(s, For) and is_over_threads(s)]
    return all(is_const(loop.extent, 1) for loop in loops)


def _touched_by(statements: Iterable[Stmt], *, alone: bool = False) -> _Touched:
    """The accesses of the statements themselves, nested statements not included."""
    reads, writes = touched_by(statements)
    return _Touched(_shared(reads, alone), _shared(writes, alone))


def _shared(buffers: set[Buffer], alone: bool) -> frozenset[_Access]:
    return frozenset((b, alone) for b in buffers if b.scope != "local")
