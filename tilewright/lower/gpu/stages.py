"""Copies to shared memory run ahead of the iterations that need them.

A loop annotated with `stages` keeps the operands of that many iterations in shared memory, and
becomes a pipeline (`pipelines`). Its first copies are placed as early in the launch as possible, so
that computation before the loop hides them; copies before the loop join them. Where a block of
threads computes several tiles, the first copies of a tile are made while the previous one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import (
    STAGES,
    Alloc,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Stmt,
    While,
    barrier,
    const,
    is_over_blocks,
    map_children,
    map_stmt,
    renew,
    seq,
)
from tilewright.lower.gpu.async_copies import asynchronous
from tilewright.lower.gpu.pipelines import fills, flat, pipeline_of, read, written
from tilewright.lower.gpu.tile_pipelines import tile_pipeline


def stage_copies(function: Function) -> Function:
    """Pipeline loops with stages; accesses have a single index by now."""
    return function.with_body(map_stmt(function.body, _in_launch))


def _in_launch(stmt: Stmt) -> Stmt | None:
    return _at_blocks(stmt) if is_over_blocks(stmt) else None


def _at_blocks(stmt: Stmt) -> Stmt:
    """The statements of a block of threads, some of which are loops with stages."""
    if isinstance(stmt, For) and is_over_blocks(stmt):
        return replace(stmt, body=_at_blocks(stmt.body))
    buffers: list[Buffer] = []
    statements = list(flat(stmt, buffers))
    loop = statements[0]
    if len(statements) == 1 and isinstance(loop, For) and _holds_stages(loop):
        done = _over_tiles(loop, buffers) or _staged(_without_stages(loop), repeated=False)
    elif any(map(_is_in_stages, statements)):
        done = _in_a_row(statements, buffers)
    else:
        done = None
    if done is None:
        return _staged(stmt, repeated=False)
    return Alloc(tuple(buffers), done) if buffers else done


def _over_tiles(loop: For, buffers: list[Buffer]) -> Stmt | None:
    """A loop around one with stages, whose first copies are made while the previous tile ends; if
    it has stages itself, the first products as well (`tile_pipelines`)."""
    own: list[Buffer] = []
    statements = list(flat(loop.body, own))
    place = next(k for k, s in enumerate(statements) if _is_in_stages(s))
    copies, before = _copies_before(statements[:place])
    if _is_in_stages(loop) and (whole := tile_pipeline(loop, copies, place)) is not None:
        return whole
    found = pipeline_of(statements[place], loop.var)
    if found is None or not found.ending:
        return None
    sources, after = found.sources | read(copies), statements[place + 1 :]
    if any(map(_is_in_stages, after)) or written([*before, *after]) & sources:
        return None

    def at(tile: Expr, given: Sequence[Stmt]) -> Stmt:
        return renew(seq(*given), {loop.var: tile})

    coming, first = loop.var + 1, const(0)
    filling = [*map(asynchronous, copies), *found.filling]
    next_copies, next_ready = (
        [If(coming < loop.extent, at(coming, given))] if given else []
        for given in (filling, found.ready)
    )
    buffers += [*own, *found.buffers]
    body = seq(*before, found.steady, *next_copies, *found.ending, *next_ready, *after)
    return seq(at(first, [*filling, *found.ready]), replace(_without_stages(loop), body=body))


def _in_a_row(statements: Sequence[Stmt], buffers: list[Buffer]) -> Stmt:
    """Statements with the first copies of loops as early as possible: after the previous loop that
    waits for its own copies. Other copies before a loop join its first ones."""
    done: list[Stmt] = []
    free = 0
    for stmt in statements:
        found = pipeline_of(stmt)
        if found is None:
            done.append(_staged(stmt, repeated=False))
            free = free if done[-1] is stmt else len(done)
            continue
        copies, left = _copies_before(done, free)
        sources, start = found.sources | read(copies), len(left)
        while start > free and not written([left[start - 1]]) & sources:
            start -= 1
        left[start:start] = [*map(asynchronous, copies), *found.filling]
        done = [*left, *found.ready, found.steady, *found.ending]
        free = len(done)
        buffers += found.buffers
    return seq(*done)


def _copies_before(statements: Sequence[Stmt], free: int = 0) -> tuple[list[Stmt], list[Stmt]]:
    """Copies to shared memory, from statement `free` on, that are independent of other statements;
    and the others."""
    copies: list[Stmt] = []
    for k, stmt in enumerate(statements[free:], start=free):
        others = [*statements[:k], *statements[k + 1 :]]
        if _copies_alone(stmt, others) and not read([stmt]) & written(others):
            copies.append(stmt)
    return copies, [s for s in statements if s not in copies]


def _copies_alone(stmt: Stmt, others: Sequence[Stmt]) -> bool:
    """Whether a statement copies to shared memory that no others access, all asynchronously."""
    shared = {b for b in written([stmt]) if b.scope == "shared"}
    if not fills(stmt, shared) or shared & (written(others) | read(others)):
        return False
    return not written([asynchronous(stmt)])


def _holds_stages(loop: For) -> bool:
    """Whether one of the statements in a loop is a loop with stages."""
    return any(map(_is_in_stages, flat(loop.body, [])))


def _without_stages(loop: For) -> For:
    return replace(loop, annotations={k: v for k, v in loop.annotations.items() if k != STAGES})


def _is_in_stages(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and STAGES in stmt.annotations


def _staged(stmt: Stmt, *, repeated: bool) -> Stmt:
    """Pipeline the loops in a statement; `repeated` if a loop around repeats it."""
    found = pipeline_of(stmt)
    if found is not None:
        whole = seq(*found.filling, *found.ready, found.steady, *found.ending)
        done = Alloc(tuple(found.buffers), whole)
        # The copies of a repetition must not overtake the previous one's reads.
        return seq(barrier(), done) if repeated else done
    again = repeated or (isinstance(stmt, For | While) and not is_over_blocks(stmt))
    return map_children(stmt, lambda s: _staged(s, repeated=again))
