"""Pipelines a loop with stages: its copies run ahead.

    for k in range(8):  (stages=3)                     S = alloc(f16[3 * 64], scope="shared")
        S = alloc(f16[64], scope="shared")             copy(0 → S[0 …]); async_commit()
        copy(k → S)                           -->      copy(1 → S[64 …]); async_commit()
        compute(S)                                     for k in range(8):
                                                           async_wait(1); barrier()
                                                           if k + 2 < 8: copy(k + 2 → S[…])
                                                           async_commit()
                                                           compute(S[k % 3 * 64 …])

Each thread's copies are asynchronous where they are whole vectors; those of an iteration form a
group, and a thread waits until all groups but the latest have completed. The barrier after that
makes them visible, and ensures that nothing still reads what is overwritten next.

Products of groups of warps (`group_products`) continue during the next iteration: a thread waits
for those of the previous iteration, whose operands may be overwritten in the next one. So copies
are one iteration less ahead than there are buffers for. Where an iteration has two such products,
the second one and its copies are an iteration late (`overlap`). Two groups of warps then multiply
in turns: each signals when it has its sums, and does not wait for what the other computes from its
own. With a loop over tiles around it, they take turns from tile to tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tilewright.ir import (
    GROUP,
    STAGES,
    WARP,
    Alloc,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    all_exprs,
    all_of,
    barrier,
    call,
    const,
    map_expr,
    map_stmt,
    renew,
    seq,
    threads_of,
    walk,
)
from tilewright.lower.gpu.async_copies import asynchronous
from tilewright.lower.gpu.overlap import Overlap, overlap_of

#: The alignment of the versions of a buffer, in bytes.
_ALIGNMENT: Final = 16
_ONLY: Final = const(0)
#: For each buffer, one that holds several versions of it, and their distance in elements.
Enlarged = dict[Buffer, tuple[Buffer, int]]


class _Parts(NamedTuple):
    """The body of a loop: buffers in shared memory that copies fill, other buffers, the copies, and
    the statements that use them."""

    buffers: list[Buffer]
    others: list[Buffer]
    copies: list[Stmt]
    uses: list[Stmt]
    #: Waits for products of `uses`, where these can continue during the next iteration.
    finish: list[Stmt]


class Pipeline(NamedTuple):
    """A loop with pipelined copies: the copies before it, and the loop."""

    buffers: list[Buffer]
    #: The buffers that are copied from.
    sources: set[Buffer]
    filling: Sequence[Stmt]
    steady: Stmt
    #: Waits for the first copies, where the loop itself does not wait.
    ready: Sequence[Stmt] = ()
    #: Statements that remain once nothing reads any more what the first copies would overwrite.
    ending: Sequence[Stmt] = ()


def pipeline_of(stmt: Stmt, tile: Expr = _ONLY) -> Pipeline | None:
    """Pipeline a loop with stages, if its copies can run ahead; it belongs to this `tile`."""
    stages = stmt.annotations.get(STAGES) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or stages is None:
        return None
    parts = parts_of(stmt)
    return None if parts is None else _pipelined(stmt, parts, int(stages), tile)


def parts_of(loop: For) -> _Parts | None:
    """The body split up; None where copies cannot run ahead of the rest."""
    buffers: list[Buffer] = []
    statements = list(flat(loop.body, buffers))
    shared = {b for b in buffers if b.scope == "shared"}
    if not shared or any(b.scope not in ("shared", "local") for b in buffers):
        return None
    copies = [s for s in statements if fills(s, shared) and not read([s]) & written(statements)]
    uses, staged = [s for s in statements if s not in copies], written(copies)
    if not copies or not uses or staged & written(uses):
        return None
    if any(written([c]) & read(statements[: statements.index(c)]) for c in copies):
        return None
    count = next((k for k, s in enumerate(uses) if _is_finish(s)), len(uses))
    uses, finish = uses[:count], uses[count:]
    if not all(map(_is_finish, finish)):
        uses, finish = [*uses, *finish], []
    kept = [b for b in buffers if b not in staged]
    return _Parts([b for b in buffers if b in staged], kept, copies, uses, finish)


def _is_finish(stmt: Stmt) -> bool:
    given = stmt.call if isinstance(stmt, Evaluate) else None
    return isinstance(given, Call) and given.name == "products_finish"


def flat(stmt: Stmt, buffers: list[Buffer]) -> Iterable[Stmt]:
    """Consecutive statements, without the allocations around them."""
    if isinstance(stmt, Alloc):
        buffers += stmt.buffers
        yield from flat(stmt.body, buffers)
    elif isinstance(stmt, Seq):
        for child in stmt.statements:
            yield from flat(child, buffers)
    else:
        yield stmt


def fills(stmt: Stmt, shared: set[Buffer]) -> bool:
    """Whether a statement only writes these buffers, and reads only others."""
    filled = written([stmt])
    has_calls = any(isinstance(s, Evaluate) for s in walk(stmt))
    return bool(filled) and filled <= shared and not has_calls and not read([stmt]) & shared


def written(statements: Iterable[Stmt]) -> set[Buffer]:
    return {s.buffer for stmt in statements for s in walk(stmt) if isinstance(s, Store)}


def read(statements: Iterable[Stmt]) -> set[Buffer]:
    exprs = (e for stmt in statements for e in all_exprs(stmt))
    return {e.buffer for e in exprs if isinstance(e, Load)}


def _pipelined(loop: For, parts: _Parts, stages: int, tile: Expr) -> Pipeline:
    """A loop with no more iterations than stages makes all its copies before it."""
    extent = int(loop.extent.value) if isinstance(loop.extent, Const) else None
    is_short = extent is not None and extent <= stages
    if extent is not None and not is_short and (overlap := overlap_of(parts.uses)) is not None:
        return _overlapping(loop, extent, parts, overlap, max(2, stages), tile)
    goes_on = bool(parts.finish)
    versions = extent if is_short and extent is not None else max(3 if goes_on else 2, stages)
    ahead = versions if is_short else versions - (2 if goes_on else 1)
    larger = enlarged(parts.buffers, versions)
    copies = [asynchronous(copy) for copy in parts.copies]
    filling: list[Stmt] = []
    for k in range(ahead):
        filling += [_at(copies, loop, const(k), larger, versions), commit()]
    coming = loop.var + ahead
    next_copies = [] if is_short else [_at(copies, loop, coming, larger, versions)]
    body = seq(
        arrived(ahead),
        barrier(),
        *(If(coming < loop.extent, c) for c in next_copies),
        # A group without copies counts, too, so that the number to wait for stays the same.
        commit(),
        *(redirected(use, larger, loop.var % versions) for use in parts.uses),
        *([effect("products_wait", const(1))] if goes_on else []),
    )
    body = Alloc(tuple(parts.others), body) if parts.others else body
    plain = {k: v for k, v in loop.annotations.items() if k != STAGES}
    steady = seq(replace(loop, body=body, annotations=plain), *parts.finish)
    return Pipeline([b for b, _ in larger.values()], read(parts.copies), filling, steady)


def _overlapping(
    loop: For, last: int, parts: _Parts, overlap: Overlap, versions: int, tile: Expr
) -> Pipeline:
    """A loop of `last` iterations whose second product, with its copies, is one iteration late."""
    ahead, turn = versions - 1, tile * (last + 1)
    larger = enlarged(parts.buffers, versions)
    used = read([*overlap.early, *overlap.between, *overlap.rest])
    copies = {
        delay: [asynchronous(c) for c in parts.copies if bool(written([c]) & used) != bool(delay)]
        for delay in (0, 1)
    }
    takes_turns = threads_of(loop) == (WARP, GROUP, 2)
    arrival = [arrived(ahead), effect("groups_arrive", turn + loop.var)] if takes_turns else []

    def copies_of(iteration: Expr) -> list[Stmt]:
        """The copies of an iteration: for its first product, and for a late one."""
        places = [(iteration - delay, given) for delay, given in copies.items() if given]
        done = [
            If(
                all_of(place >= 0, place < last),
                _at(given, loop, place, larger, versions),
            )
            for place, given in places
        ]
        return [*done, commit()]

    def at(iteration: Expr, statements: Sequence[Stmt]) -> list[Stmt]:
        return [_at([s], loop, iteration, larger, versions) for s in statements]

    def meeting(iteration: Expr, ahead: int = ahead) -> list[Stmt]:
        if takes_turns:
            return [effect("groups_await", turn + iteration - 1)]
        return [arrived(ahead), barrier()]

    first, coming = const(0), loop.var + 1
    given = (coming, overlap.early), (loop.var, overlap.late), (coming, overlap.later(arrival))
    body = seq(
        *meeting(coming),
        *copies_of(coming + ahead),
        *(s for place, statements in given for s in at(place, statements)),
    )
    plain = {k: v for k, v in loop.annotations.items() if k != STAGES}
    steady = [
        *meeting(first, versions),
        *at(first, overlap.first(arrival)),
        replace(loop, extent=const(last - 1), body=body, annotations=plain),
        *meeting(const(last)),
        *at(const(last - 1), overlap.late),
    ]
    ending = overlap.finish_late
    if last % versions:
        # The first copies would overwrite operands of the last product.
        steady, ending = [*steady, *ending], []
    return Pipeline(
        [*parts.others, *(b for b, _ in larger.values())],
        read(parts.copies),
        [s for k in range(versions) for s in copies_of(const(k))],
        seq(*steady),
        [arrived(versions), effect("groups_arrive", turn - 1)] if takes_turns else [],
        ending,
    )


def arrived(ahead: int) -> Stmt:
    """Wait for a thread's own copies, except those for later iterations than the next."""
    return effect("async_wait", const(ahead - 1))


def commit() -> Stmt:
    """Make a group of the copies of a thread since the last group."""
    return effect("async_commit")


def effect(name: str, *args: Expr) -> Evaluate:
    return Evaluate(call(name, *args))


def enlarged(buffers: Iterable[Buffer], versions: int) -> Enlarged:
    """Buffers that hold several versions of others."""
    return {b: _versions(b, versions) for b in buffers}


def _versions(buffer: Buffer, stages: int) -> tuple[Buffer, int]:
    """A buffer that holds several versions of another, and their distance in elements."""
    strides = [int(s.value) for s in buffer.stride_exprs() if isinstance(s, Const)]
    extents = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    assert len(strides) == len(extents) == buffer.ndim, "shared memory has known sizes"
    size = 1 + sum((e - 1) * s for e, s in zip(extents, strides, strict=True))
    unit = max(1, _ALIGNMENT // buffer.dtype.itemsize)
    apart = -(-size // unit) * unit
    return buffer.with_(shape=(const(stages * apart),), strides=None), apart


def _at(
    copies: Sequence[Stmt],
    loop: For,
    iteration: Expr,
    larger: Enlarged,
    stages: int,
) -> Stmt:
    """The copies of an iteration."""
    moved = (redirected(copy, larger, loop.var % stages) for copy in copies)
    return renew(seq(*moved), {loop.var: iteration})


def redirected(stmt: Stmt, larger: Enlarged, version: Expr) -> Stmt:
    """A statement that uses one version of the buffers."""

    def index(buffer: Buffer, given: Expr) -> Expr:
        start = version * larger[buffer][1]
        if isinstance(given, Ramp):
            return Ramp(given.base + start, given.stride, given.dtype.lanes)
        return given + start

    def on_node(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in larger:
            return None
        (place,) = node.indices
        return Load(larger[node.buffer][0], (index(node.buffer, place),), node.mask)

    def on_stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or s.buffer not in larger:
            return None
        (place,) = s.indices
        return replace(s, buffer=larger[s.buffer][0], indices=(index(s.buffer, place),))

    memo: dict[Expr, Expr] = {}
    return map_stmt(stmt, on_stmt, lambda e: map_expr(e, on_node, memo))
