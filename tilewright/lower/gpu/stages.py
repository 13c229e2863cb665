"""Copies to shared memory run ahead of the iterations that need them.

    for k in range(8):  (stages=3)                     S = alloc(f16[3 * 64], scope="shared")
        S = alloc(f16[64], scope="shared")             copy(0 → S[0 …]); async_commit()
        copy(k → S)                           -->      copy(1 → S[64 …]); async_commit()
        compute(S)                                     for k in range(8):
                                                           async_wait(1); barrier()
                                                           if k + 2 < 8: copy(k + 2 → S[…])
                                                           async_commit()
                                                           compute(S[k % 3 * 64 …])

A loop that is annotated with `stages` keeps the operands of so many iterations in shared memory.
Each thread's copies are asynchronous where they are whole vectors; those of an iteration make a
group, and a thread waits until all groups but the latest have landed. The barrier after that makes
them visible, and says that nobody reads any longer what is overwritten next. The first copies of a
loop stand as early in the launch as they can, so that what is computed before it hides them.

Products of groups of warps (`group_products`) go on during the next iteration: a thread waits for
those of the iteration before, whose operands may be overwritten in the next one. So copies are one
iteration less ahead than there is room for. Where an iteration has two such products, the second
one's copies are made an iteration later, and so is it (`overlap`). Two groups of warps multiply in
turn then: each tells when it has its sums, and does not wait for what the other makes of its own.
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
    Function,
    If,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    While,
    all_exprs,
    all_of,
    barrier,
    call,
    const,
    is_over_blocks,
    map_children,
    map_expr,
    map_stmt,
    renew,
    seq,
    threads_of,
    walk,
)
from tilewright.lower.gpu.async_copies import asynchronous
from tilewright.lower.gpu.overlap import Overlap, overlap_of

#: What the versions of a buffer lie apart divides by, in bytes.
_ALIGNMENT: Final = 16


class _Parts(NamedTuple):
    """The body of a loop: buffers in shared memory that copies fill, its others, the copies, and
    what uses them."""

    buffers: list[Buffer]
    others: list[Buffer]
    copies: list[Stmt]
    uses: list[Stmt]
    #: What waits for products of the uses, where these can go on during the next iteration.
    finish: list[Stmt]


class _Pipeline(NamedTuple):
    """A loop whose copies run ahead: those before it, and the loop."""

    buffers: list[Buffer]
    #: What is copied.
    sources: set[Buffer]
    filling: list[Stmt]
    steady: Stmt


def stage_copies(function: Function) -> Function:
    """Loops with stages as loops whose copies run ahead; accesses have one index by now."""
    return function.with_body(map_stmt(function.body, _in_launch))


def _in_launch(stmt: Stmt) -> Stmt | None:
    return _at_blocks(stmt) if is_over_blocks(stmt) else None


def _at_blocks(stmt: Stmt) -> Stmt:
    """What a block of threads does: statements in a row, some of which are loops with stages."""
    if isinstance(stmt, For) and is_over_blocks(stmt):
        return replace(stmt, body=_at_blocks(stmt.body))
    buffers: list[Buffer] = []
    statements = list(_flat(stmt, buffers))
    if not any(isinstance(s, For) and STAGES in s.annotations for s in statements):
        return _staged(stmt, repeated=False)
    done = _in_a_row(statements, buffers)
    return Alloc(tuple(buffers), done) if buffers else done


def _in_a_row(statements: Sequence[Stmt], buffers: list[Buffer]) -> Stmt:
    """Statements with the first copies of loops as early as they can be: after the loop before
    that waits for copies of its own. Copies right before a loop join its first ones."""
    done: list[Stmt] = []
    free = 0
    for stmt in statements:
        found = _pipeline(stmt)
        if found is None:
            done.append(_staged(stmt, repeated=False))
            free = free if done[-1] is stmt else len(done)
            continue
        alone, touched = list[Stmt](), set[Buffer]()
        while len(done) > free and (copies := _copies_alone(done[-1], done[:-1])) is not None:
            touched |= _written([done[-1]])
            found = found._replace(sources=found.sources | _read([done.pop()]))
            alone.insert(0, copies)
        start = len(done)
        while start > free and not _meet(done[start - 1], found.sources, touched):
            start -= 1
        done[start:start] = [*alone, *found.filling]
        done.append(found.steady)
        free = len(done)
        buffers += found.buffers
    return seq(*done)


def _copies_alone(stmt: Stmt, before: Sequence[Stmt]) -> Stmt | None:
    """Copies to shared memory that nothing has touched before, as asynchronous ones."""
    shared = {b for b in _written([stmt]) if b.scope == "shared"}
    if not _fills(stmt, shared) or shared & (_written(before) | _read(before)):
        return None
    copies = asynchronous(stmt)
    return None if _written([copies]) else copies


def _meet(stmt: Stmt, sources: set[Buffer], touched: set[Buffer]) -> bool:
    """Whether a statement writes what is copied, or touches where to."""
    written = _written([stmt])
    return bool(written & sources) or bool((written | _read([stmt])) & touched)


def _pipeline(stmt: Stmt) -> _Pipeline | None:
    """A loop with stages, if copies can run ahead of the rest of it."""
    stages = stmt.annotations.get(STAGES) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or stages is None:
        return None
    parts = _parts(stmt)
    return None if parts is None else _pipelined(stmt, parts, int(stages))


def _staged(stmt: Stmt, *, repeated: bool) -> Stmt:
    """A statement with its loops in stages; whether it is `repeated` by a loop around it."""
    found = _pipeline(stmt)
    if found is not None:
        done = Alloc(tuple(found.buffers), seq(*found.filling, found.steady))
        # The copies of a repetition must not meet what reads those of the one before.
        return seq(barrier(), done) if repeated else done
    again = repeated or (isinstance(stmt, For | While) and not is_over_blocks(stmt))
    return map_children(stmt, lambda s: _staged(s, repeated=again))


def _parts(loop: For) -> _Parts | None:
    """The body taken apart; None where copies cannot run ahead of the rest."""
    buffers: list[Buffer] = []
    statements = list(_flat(loop.body, buffers))
    shared = {b for b in buffers if b.scope == "shared"}
    if not shared or any(b.scope not in ("shared", "local") for b in buffers):
        return None
    copies = [s for s in statements if _fills(s, shared) and not _read([s]) & _written(statements)]
    uses, staged = [s for s in statements if s not in copies], _written(copies)
    if not copies or not uses or staged & _written(uses):
        return None
    if any(_written([c]) & _read(statements[: statements.index(c)]) for c in copies):
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


def _flat(stmt: Stmt, buffers: list[Buffer]) -> Iterable[Stmt]:
    """The statements in a row, without the allocations around them."""
    if isinstance(stmt, Alloc):
        buffers += stmt.buffers
        yield from _flat(stmt.body, buffers)
    elif isinstance(stmt, Seq):
        for child in stmt.statements:
            yield from _flat(child, buffers)
    else:
        yield stmt


def _fills(stmt: Stmt, shared: set[Buffer]) -> bool:
    """Whether a statement only writes to these buffers, and reads others."""
    written = _written([stmt])
    has_calls = any(isinstance(s, Evaluate) for s in walk(stmt))
    return bool(written) and written <= shared and not has_calls and not _read([stmt]) & shared


def _written(statements: Iterable[Stmt]) -> set[Buffer]:
    return {s.buffer for stmt in statements for s in walk(stmt) if isinstance(s, Store)}


def _read(statements: Iterable[Stmt]) -> set[Buffer]:
    exprs = (e for stmt in statements for e in all_exprs(stmt))
    return {e.buffer for e in exprs if isinstance(e, Load)}


def _pipelined(loop: For, parts: _Parts, stages: int) -> _Pipeline:
    """Of a loop with no more iterations than stages all copies are made before it."""
    extent = int(loop.extent.value) if isinstance(loop.extent, Const) else None
    is_short = extent is not None and extent <= stages
    overlap = overlap_of(parts.uses) if extent is not None and not is_short else None
    if overlap is not None:
        return _overlapping(loop, parts, overlap, max(2, stages))
    goes_on = bool(parts.finish)
    versions = extent if is_short and extent is not None else max(3 if goes_on else 2, stages)
    ahead = versions if is_short else versions - (2 if goes_on else 1)
    larger = {b: _versions(b, versions) for b in parts.buffers}
    copies = [asynchronous(copy) for copy in parts.copies]
    filling: list[Stmt] = []
    for k in range(ahead):
        filling += [_at(copies, loop, const(k), larger, versions), _effect("async_commit")]
    coming = loop.var + ahead
    next_copies = [] if is_short else [_at(copies, loop, coming, larger, versions)]
    body = seq(
        _arrived(ahead),
        barrier(),
        *(If(coming < loop.extent, c) for c in next_copies),
        # A group without copies counts as well, so that the number to wait for stays the same.
        _effect("async_commit"),
        *(_redirected(use, larger, loop.var % versions) for use in parts.uses),
        *([_effect("products_wait", const(1))] if goes_on else []),
    )
    body = Alloc(tuple(parts.others), body) if parts.others else body
    plain = {k: v for k, v in loop.annotations.items() if k != STAGES}
    steady = seq(replace(loop, body=body, annotations=plain), *parts.finish)
    return _Pipeline([b for b, _ in larger.values()], _read(parts.copies), filling, steady)


def _overlapping(loop: For, parts: _Parts, overlap: Overlap, versions: int) -> _Pipeline:
    """A loop whose second product, with its copies, is one iteration late."""
    ahead, last = versions - 1, loop.extent
    larger = {b: _versions(b, versions) for b in parts.buffers}
    read = _read([*overlap.early, *overlap.between, *overlap.rest])
    copies = {
        delay: [asynchronous(c) for c in parts.copies if bool(_written([c]) & read) != bool(delay)]
        for delay in (0, 1)
    }
    takes_turns = threads_of(loop) == (WARP, GROUP, 2)
    arrival = [_arrived(ahead), _effect("groups_arrive", loop.var)] if takes_turns else []

    def copies_of(iteration: Expr) -> list[Stmt]:
        """What comes with an iteration: copies for its first product, and for a late one."""
        places = [(iteration - delay, copies[delay]) for delay in (0, 1)]
        return [
            If(all_of(place >= 0, place < last), _at(given, loop, place, larger, versions))
            for place, given in places
            if given
        ]

    def at(iteration: Expr, statements: Sequence[Stmt]) -> list[Stmt]:
        return [_at([s], loop, iteration, larger, versions) for s in statements]

    def step(iteration: Expr, statements: Sequence[Stmt]) -> list[Stmt]:
        meeting = [_arrived(ahead), barrier()]
        if takes_turns and iteration is not first:
            meeting = [_effect("groups_await", iteration - 1)]
        return [*meeting, *copies_of(iteration + ahead), _effect("async_commit"), *statements]

    filling: list[Stmt] = []
    for k in range(ahead):
        filling += [*copies_of(const(k)), _effect("async_commit")]
    first, coming = const(0), loop.var + 1
    given = (coming, overlap.early), (loop.var, overlap.late), (coming, overlap.later(arrival))
    body = step(coming, [s for place, statements in given for s in at(place, statements)])
    plain = {k: v for k, v in loop.annotations.items() if k != STAGES}
    steady = seq(
        *step(first, at(first, overlap.first(arrival))),
        replace(loop, extent=last - 1, body=seq(*body), annotations=plain),
        *step(last, [*at(last - 1, overlap.late), *overlap.finish_late]),
    )
    steady = Alloc(tuple(parts.others), steady) if parts.others else steady
    return _Pipeline([b for b, _ in larger.values()], _read(parts.copies), filling, steady)


def _arrived(ahead: int) -> Stmt:
    """A wait for a thread's own copies, but for those of iterations that are not next."""
    return _effect("async_wait", const(ahead - 1))


def _effect(name: str, *args: Expr) -> Evaluate:
    return Evaluate(call(name, *args))


def _versions(buffer: Buffer, stages: int) -> tuple[Buffer, int]:
    """A buffer that holds several versions of another, and how many elements these lie apart."""
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
    larger: dict[Buffer, tuple[Buffer, int]],
    stages: int,
) -> Stmt:
    """The copies of an iteration."""
    moved = (_redirected(copy, larger, loop.var % stages) for copy in copies)
    return renew(seq(*moved), {loop.var: iteration})


def _redirected(stmt: Stmt, larger: dict[Buffer, tuple[Buffer, int]], version: Expr) -> Stmt:
    """A statement on one version of the buffers."""

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
