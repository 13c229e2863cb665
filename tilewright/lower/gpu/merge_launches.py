"""Merge loops over small launches, with the launches around them, into one launch.

    for t in range(64):                                for b in thread(4, "blockIdx.x"):
        for b in thread(4, "blockIdx.x"):       -->        for t in range(64):
            for i in thread(32, "threadIdx.x"):                for i in thread(32, "threadIdx.x"):
                H[t + 1, b * 32 + i] = …H[t]…                      H[t + 1, b * 32 + i] = …H[t]…
                                                               grid_barrier()

Consecutive launches become one, whose blocks synchronize where one launch accesses what another has
written. So all blocks must be resident at once: no more than the device has multiprocessors. A
launch of fewer blocks leaves the others idle. If a launch copies the same data to shared memory in
each iteration of a loop, it is copied once before the loop.

Outside loops, only launches of single blocks are merged: a barrier of all blocks takes longer than
the next launch of a graph, and such merged launches run one at a time.

A failed check leaves the kernel, and blocks waiting at a barrier would wait forever: launches with
checks are not merged. Nor are those of two groups of warps that take turns (others may have more
threads), or of functions whose result may share memory with an operand, where distinct buffers
overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple

from tilewright.ir import (
    Alloc,
    Assert,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Seq,
    Stmt,
    Var,
    While,
    all_exprs,
    const,
    free_vars,
    grid_barrier,
    is_arrival,
    is_over_blocks,
    is_over_threads,
    map_children,
    seq,
    substitute_stmt,
    threads_of,
    walk,
)
from tilewright.lower.gpu.accesses import touched_by
from tilewright.lower.gpu.launches import count_launches
from tilewright.lower.gpu.pipelines import flat
from tilewright.target import Target

#: The attribute with the number of launches that a function made before merging.
MERGED: Final = "launches_before"
#: An access: a buffer, and whether only the first block makes it.
_Access = tuple[Buffer, bool]


@dataclass(frozen=True)
class _Touched:
    """Accesses to the device's memory: reads and writes."""

    reads: frozenset[_Access] = frozenset()
    writes: frozenset[_Access] = frozenset()

    @classmethod
    def by(cls, stmt: Stmt, *, alone: bool) -> _Touched:
        found = touched_by(walk(stmt))
        reads, writes = (
            frozenset((b, alone) for b in part if b.scope == "global") for part in found
        )
        return cls(reads, writes)

    def __or__(self, other: _Touched) -> _Touched:
        return _Touched(self.reads | other.reads, self.writes | other.writes)

    def meets(self, other: _Touched) -> bool:
        """Whether blocks conflict; threads of a single block synchronize by themselves."""
        return _meet(self.writes, other.reads | other.writes) or _meet(self.reads, other.writes)


def _meet(before: frozenset[_Access], after: frozenset[_Access]) -> bool:
    return any(a is b and not (alone and first) for a, alone in before for b, first in after)


_NOTHING = _Touched()


@dataclass(frozen=True)
class _Limits:
    """Limits of a single launch."""

    blocks: int
    threads: int
    shared: int


def merge_launches(function: Function, target: Target) -> Function:
    """Merge loops over small launches, with the launches before and after them."""
    gpu = target.gpu
    if gpu is None or "in_place" in function.attrs:
        return function
    limits = _Limits(gpu.multiprocessors, gpu.most_threads, gpu.shared)
    made = _merged(function.body, limits)
    before, after = count_launches(function.body), count_launches(made)
    merged = function.with_body(made)
    return merged.with_attrs(**{MERGED: before}) if after < before else merged


def _merged(stmt: Stmt, limits: _Limits) -> Stmt:
    """Merge within a statement of the host."""
    buffers: list[Buffer] = []
    row = list(flat(stmt, buffers))
    done = [s for run in _runs(row, limits) for s in _as_one(run, limits, buffers)]
    if len(done) == len(row) and all(a is b for a, b in zip(done, row, strict=True)):
        return stmt
    return Alloc(tuple(buffers), seq(*done)) if buffers else seq(*done)


def _runs(row: Sequence[Stmt], limits: _Limits) -> Iterator[list[Stmt]]:
    """Group consecutive statements that can be one launch; the others stay alone."""
    run: list[Stmt] = []
    for stmt in row:
        if run and not _fit([*run, stmt], limits):
            yield run
            run = []
        run.append(stmt)
    if run:
        yield run


def _as_one(run: list[Stmt], limits: _Limits, outside: list[Buffer]) -> list[Stmt]:
    """Statements as one launch, if possible; `outside` collects what is allocated around it."""
    launches = [s for stmt in run for s in _launches(stmt)]
    if not _fit(run, limits):
        return [_merged_inside(s, limits) for s in run]
    blocks = max(map(_blocks, launches))
    if not any(map(_has_loop, run)) and (len(run) == 1 or blocks > 1):
        return run
    number = Var("block", "int64")
    buffers: list[Buffer] = []
    outside += (b for s in run for of in _of_host(s) if isinstance(of, Alloc) for b in of.buffers)
    parts = [p for s in run for p in _parts(s, number, blocks, buffers)]
    inside = _ordered(parts, _NOTHING)[0] if blocks > 1 else _plain(parts)
    inside = Alloc(tuple(buffers), inside) if buffers else inside
    return [For(number, const(blocks), "thread", inside, axis="blockIdx.x")]


def _has_loop(stmt: Stmt) -> bool:
    """Whether the host has a loop over launches in a statement."""
    return any(isinstance(s, For) and not is_over_blocks(s) for s in _of_host(stmt))


def _merged_inside(stmt: Stmt, limits: _Limits) -> Stmt:
    if is_over_blocks(stmt):
        return stmt
    return map_children(stmt, lambda s: _merged(s, limits))


# ---- what can be merged -------------------------------------------------------------------------


def _fit(run: Sequence[Stmt], limits: _Limits) -> bool:
    """Whether statements can be one launch."""
    if not all(map(_is_mergeable, run)):
        return False
    launches = [s for stmt in run for s in _launches(stmt)]
    threads = [max(of) for of in zip(*(threads_of(s) for s in launches), strict=True)]
    shared = [_shared_bytes(s) for s in launches]
    return (
        all(_blocks(s) <= limits.blocks for s in launches)
        and prod(threads) <= limits.threads
        and sum(shared) <= limits.shared
    )


def _launches(stmt: Stmt) -> Iterator[Stmt]:
    if is_over_blocks(stmt):
        yield stmt
    elif isinstance(stmt, For | Alloc):
        yield from _launches(stmt.body)
    elif isinstance(stmt, Seq):
        for child in stmt.statements:
            yield from _launches(child)


def _is_mergeable(stmt: Stmt) -> bool:
    """Whether a statement is a launch of a known number of blocks, or a loop over only such."""
    if is_over_blocks(stmt):
        kept = (s for s in walk(stmt) if isinstance(s, Assert) or is_arrival(s))
        return _is_known(stmt) and not any(kept)
    if isinstance(stmt, Seq):
        return all(map(_is_mergeable, stmt.statements))
    if isinstance(stmt, Alloc):
        return None not in [b.static_size() for b in stmt.buffers] and _is_mergeable(stmt.body)
    return (
        isinstance(stmt, For)
        and stmt.kind == "serial"
        and any(map(is_over_blocks, walk(stmt)))
        and _is_mergeable(stmt.body)
    )


def _of_host(stmt: Stmt) -> Iterator[Stmt]:
    """The statements outside launches."""
    yield stmt
    if isinstance(stmt, For | Alloc | Let | While) and not is_over_blocks(stmt):
        yield from _of_host(stmt.body)
    elif isinstance(stmt, Seq):
        for child in stmt.statements:
            yield from _of_host(child)


def _is_known(launch: Stmt) -> bool:
    sizes = [b.static_size() for b in _allocated(launch) if b.scope == "shared"]
    return all(isinstance(loop.extent, Const) for loop in _nest(launch)) and None not in sizes


def _nest(launch: Stmt) -> list[For]:
    """The loops over blocks, outermost first."""
    loops: list[For] = []
    while isinstance(launch, For) and is_over_blocks(launch):
        loops.append(launch)
        launch = launch.body
    return loops


def _blocks(launch: Stmt) -> int:
    return prod(_extent(loop) for loop in _nest(launch))


def _extent(loop: For) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)


def _allocated(stmt: Stmt) -> Iterator[Buffer]:
    return (b for s in walk(stmt) if isinstance(s, Alloc) for b in s.buffers)


def _shared_bytes(launch: Stmt) -> int:
    """Bytes of shared memory; alignment may leave gaps between buffers."""
    shared = [b for b in _allocated(launch) if b.scope == "shared"]
    return sum(_size(b) * b.dtype.itemsize + 16 for b in shared)


def _size(buffer: Buffer) -> int:
    """Elements from the first to the last, gaps included."""
    extents = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    strides = [int(s.value) for s in buffer.stride_exprs() if isinstance(s, Const)]
    return 1 + sum((e - 1) * s for e, s in zip(extents, strides, strict=True))


# ---- one launch ---------------------------------------------------------------------------------


class _Step(NamedTuple):
    """What a block does in one launch."""

    stmt: Stmt
    touched: _Touched


class _Loop(NamedTuple):
    """A loop over launches."""

    loop: For
    parts: Sequence[_Part]

    @property
    def touched(self) -> _Touched:
        touched = _NOTHING
        for part in self.parts:
            touched |= part.touched
        return touched


_Part = _Step | _Loop


def _parts(stmt: Stmt, number: Var, blocks: int, buffers: list[Buffer]) -> Iterator[_Part]:
    """What a block does in a statement; `buffers` collects those that live for the whole launch."""
    if isinstance(stmt, Seq | Alloc):
        for child in flat(stmt, []):
            yield from _parts(child, number, blocks, buffers)
        return
    if is_over_blocks(stmt):
        yield _step(stmt, number, blocks)
        return
    assert isinstance(stmt, For)
    written = touched_by(walk(stmt))[1]
    inner: list[_Part] = []
    for part in flat(stmt.body, []):
        if is_over_blocks(part):
            hoisted, part = _invariant(part, stmt.var, written, buffers)
            yield from (_step(s, number, blocks) for s in hoisted)
        inner += _parts(part, number, blocks, buffers)
    yield _Loop(stmt, inner)


def _step(launch: Stmt, number: Var, blocks: int) -> _Step:
    """What block `number` of `blocks` does in a launch."""
    nest = _nest(launch)
    values: dict[Var, Expr] = {}
    left: Expr = number
    for loop in sorted(nest, key=lambda x: x.axis):
        is_last = len(values) == len(nest) - 1
        values[loop.var] = left if is_last else left % loop.extent
        left = left // loop.extent
    body = substitute_stmt(nest[-1].body, values)
    count = _blocks(launch)
    touched = _Touched.by(body, alone=count == 1)
    return _Step(body if count == blocks else If(number < count, body), touched)


def _invariant(
    launch: Stmt, var: Var, written: set[Buffer], buffers: list[Buffer]
) -> tuple[list[Stmt], Stmt]:
    """Split off what fills shared memory identically in all iterations of a loop, as separate
    launches; gives also the rest."""
    nest, own = _nest(launch), list[Buffer]()
    row = list(flat(nest[-1].body, own))
    shared = {b for b in own if b.scope == "shared"}
    moved: list[Stmt] = []
    for stmt in row:
        reads, writes = touched_by(walk(stmt))
        others = {b for s in row if s is not stmt for b in touched_by(walk(s))[1]}
        if (
            is_over_threads(stmt)
            and writes
            and writes <= shared - others
            and not reads & (written | writes)
            and all(b.scope == "global" for b in reads)
            and not _uses(stmt, var)
        ):
            moved.append(stmt)
    if not moved:
        return [], launch
    filled = {b for s in moved for b in touched_by(walk(s))[1]}
    buffers += filled
    rest, kept = [s for s in row if s not in moved], tuple(b for b in own if b not in filled)
    body = Alloc(kept, seq(*rest)) if kept else seq(*rest)
    return [_with_body(nest, s) for s in moved], _with_body(nest, body)


def _uses(stmt: Stmt, var: Var) -> bool:
    return any(var in free_vars(e) for e in all_exprs(stmt))


def _with_body(nest: Sequence[For], body: Stmt) -> Stmt:
    for loop in reversed(nest):
        body = replace(loop, body=body)
    return body


# ---- barriers -----------------------------------------------------------------------------------


def _plain(parts: Sequence[_Part]) -> Stmt:
    """The parts for a single block; barriers between its threads are placed later."""
    return seq(
        *(p.stmt if isinstance(p, _Step) else replace(p.loop, body=_plain(p.parts)) for p in parts)
    )


def _ordered(parts: Sequence[_Part], pending: _Touched) -> tuple[Stmt, _Touched]:
    """Parts with grid barriers, given the accesses since the last one; gives also those after."""
    done: list[Stmt] = []
    for part in parts:
        if pending.meets(part.touched):
            done.append(grid_barrier())
            pending = _NOTHING
        stmt, after = _one(part)
        done.append(stmt)
        pending |= after
    return seq(*done), pending


def _one(part: _Part) -> tuple[Stmt, _Touched]:
    """One part, right after a barrier, and the accesses since the last barrier in it."""
    if isinstance(part, _Step):
        return part.stmt, part.touched
    body, after = _ordered(part.parts, _NOTHING)
    # The next iteration follows.
    if after.meets(part.touched):
        body, after = seq(body, grid_barrier()), _NOTHING
    return replace(part.loop, body=body), after
