"""Threads that store pairs of elements store four each instead, so that whole sectors are written.

    for t in thread(32, "threadIdx.x"):             for t in thread(32, "threadIdx.x"):
        R[x + t % 4 * 2 …] = a           -->            b1 = thread t ^ 1's value of b, or of a
        R[x + t % 4 * 2 + 8 …] = b                      R[x + t % 4 // 2 * 4 + t % 2 * 8 …] = a b1

Four threads have eight contiguous elements of 16 bits of a row (`ir.warps`), two each: a store of a
warp then writes halves of sectors of 32 bytes, which takes as long as whole ones. Two threads
exchange a pair of two adjacent such runs: then the even one has four elements of the first run, the
odd one four of the second. A schedule can disable that for a loop (`KEEPS_PAIRS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tilewright.arith import prove_equal, simplify
from tilewright.ir import (
    KEEPS_PAIRS,
    OWNERS,
    WARP,
    Alloc,
    Binary,
    Broadcast,
    Expr,
    For,
    Function,
    Let,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    call,
    cast,
    const,
    is_const,
    loads_in,
    map_children,
    seq,
    substitute,
)

#: Contiguous elements that a thread has, and that the threads of a row have together.
_PAIR: Final = 2
_RUN: Final = _PAIR * OWNERS
_ITEM_BYTES: Final = 2


def join_pairs(function: Function) -> Function:
    """The function with pairs joined; stores have a single index by now."""
    return function.with_body(_inside(function.body))


def _inside(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and KEEPS_PAIRS in stmt.annotations:
        return stmt
    if isinstance(stmt, For) and stmt.axis == "threadIdx.x" and is_const(stmt.extent, WARP):
        return _phase(stmt)
    return map_children(stmt, _inside)


def _phase(stmt: For) -> For:
    """A loop over the threads of a warp."""
    inner = stmt.body
    buffers = inner.buffers if isinstance(inner, Alloc) else ()
    inner = inner.body if isinstance(inner, Alloc) else inner
    row = inner.statements if isinstance(inner, Seq) else (inner,)
    joined = _joined(row, stmt.var)
    if len(joined) == len(row):
        return stmt
    body = Alloc(buffers, seq(*joined)) if buffers else seq(*joined)
    return replace(stmt, body=body)


def _joined(row: Sequence[Stmt], lane: Var) -> list[Stmt]:
    """The statements with consecutive stores of pairs joined, where none reads what others
    write."""
    done: list[Stmt] = []
    waiting: list[Store] = []
    for stmt in row:
        if not _is_pair(stmt, lane) or (waiting and not _go_together(waiting, stmt)):
            done += waiting
            waiting = []
        if not _is_pair(stmt, lane):
            done.append(stmt)
            continue
        assert isinstance(stmt, Store)
        first = next((s for s in waiting if _follows(stmt, s)), None)
        if first is None:
            waiting.append(stmt)
        else:
            waiting.remove(first)
            done.append(_four(first, stmt, lane))
    return [*done, *waiting]


def _is_pair(stmt: Stmt, lane: Var) -> bool:
    """Whether the threads of a row store pairs of a contiguous run, which is aligned for stores of
    four elements."""
    if not isinstance(stmt, Store) or stmt.mask is not None or stmt.buffer.scope != "global":
        return False
    if stmt.buffer.dtype.itemsize != _ITEM_BYTES or len(stmt.indices) != 1:
        return False
    (place,) = stmt.indices
    if not isinstance(place, Ramp) or place.dtype.lanes != _PAIR or not is_const(place.stride, 1):
        return False
    if any(load.buffer is stmt.buffer for load in loads_in(stmt.value)):
        return False
    run = _run(place.base, lane)
    own = simplify(place.base - run - lane % OWNERS * _PAIR)
    is_own = is_const(own, 0) or prove_equal(own, const(0))
    return is_own and prove_equal(simplify(run % (2 * _PAIR)), const(0))


def _run(place: Expr, lane: Var) -> Expr:
    """Where the run of a row begins: the index of its first thread."""
    return simplify(substitute(place, {lane: lane // OWNERS * OWNERS}))


def _go_together(waiting: Sequence[Store], stmt: Stmt) -> bool:
    return isinstance(stmt, Store) and stmt.buffer is waiting[0].buffer


def _follows(second: Store, first: Store) -> bool:
    """Whether a run directly follows another one."""
    a, b = first.indices[0], second.indices[0]
    assert isinstance(a, Ramp) and isinstance(b, Ramp)
    return is_const(simplify(b.base - a.base), _RUN)


def _four(first: Store, second: Store, lane: Var) -> Stmt:
    """Two pairs: of the first run in even threads, of the second in odd ones."""
    (place,) = first.indices
    assert isinstance(place, Ramp)
    is_odd: Expr = Binary("eq", lane % 2, const(1))
    given = Select(Broadcast(is_odd, _PAIR), first.value, second.value)
    other = cast(lane // 2 * 2 + (1 - lane % 2), "int32")
    # In a Let: all threads take part in the exchange, whatever they select then.
    got = Var("given", first.value.dtype)
    low = Select(Broadcast(is_odd, _PAIR), got, first.value)
    high = Select(Broadcast(is_odd, _PAIR), second.value, got)
    start = _run(place.base, lane) + lane % OWNERS // 2 * (2 * _PAIR) + lane % 2 * _RUN
    four = Ramp(start, const(1), 2 * _PAIR)
    store = replace(first, indices=(four,), value=call("join", low, high))
    return Let(got, call("of_lane", given, other, const(2)), store)
