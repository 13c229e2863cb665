"""Overlap the first products of a tile with the end of the previous tile.

    for t in range(m):  (stages=2)              begin 0; S = Q[0] · K[0, 0]; P = f(S)
        copy Q[t]                               for t in range(m):
        begin t                                     for k in range(1, n):
        for k in range(n):  (stages=2)                  start S = Q[t] · K[t, k]
            S = Q[t] · K[t, k]; P = f(S)   -->          start C += P · V[t, k - 1]; …
            C += P · V[t, k]                        if t + 1 < m:
        end t                                           begin t + 1
                                                        start S = Q[t + 1] · K[t + 1, 0]
                                                        start C += P · V[t, n - 1]
                                                        finish S; T = f(S); finish C
                                                        end t; P = T
                                                    else:
                                                        C += P · V[t, n - 1]; end t

An iteration of the inner loop has two products of groups of warps, of which the second is an
iteration late (`overlap`): here across tiles as well. So every computation between tiles is hidden
by a product, except what consumes the results. Data that is copied once per tile is in shared
memory twice, and is copied along with the data of the tile's first iteration.

Iterations are numbered through all tiles, for the groups that take turns. Statements at the start
of a tile that touch what the previous tile still needs (its results) stay after that one's end;
statements at the end of a tile that do not need the last product come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tilewright.ir import (
    GROUP,
    STAGES,
    WARP,
    Alloc,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Stmt,
    barrier,
    const,
    renew,
    seq,
    threads_of,
)
from tilewright.lower.gpu.async_copies import asynchronous
from tilewright.lower.gpu.overlap import Overlap, meet, overlap_of
from tilewright.lower.gpu.pipelines import (
    Enlarged,
    arrived,
    commit,
    effect,
    enlarged,
    flat,
    parts_of,
    read,
    redirected,
    written,
)

#: Versions of what is copied once per tile.
_TILES: Final = 2


class _Tile(NamedTuple):
    """A tile split up: its start, the last part of which must wait for the end of the previous
    tile; and its end, the first part of which does not need the last product."""

    begin: list[Stmt]
    begin_late: list[Stmt]
    end_early: list[Stmt]
    end: list[Stmt]


def tile_pipeline(loop: For, copies: Sequence[Stmt], place: int) -> Stmt | None:
    """A loop over tiles whose products overlap, if possible. Statement `place` of its body is a
    loop with stages; `copies` are those before it that fill shared memory for the whole tile."""
    buffers: list[Buffer] = []
    statements = list(flat(loop.body, buffers))
    inner = statements[place]
    assert isinstance(inner, For)
    parts = parts_of(inner)
    overlap = None if parts is None else overlap_of(parts.uses)
    stages = max(2, int(inner.annotations[STAGES]))
    if parts is None or overlap is None or not _are_suited(loop, inner, stages):
        return None
    before = [s for s in statements[:place] if s not in copies]
    tile = _taken_apart(before, statements[place + 1 :], overlap)
    sources = read([*copies, *parts.copies])
    if tile is None or written([*before, *parts.uses, *statements[place + 1 :]]) & sources:
        return None
    of_tile = enlarged([b for b in buffers if b in written(copies)], _TILES)
    of_step = enlarged(parts.buffers, stages)
    used = read([*overlap.early, *overlap.between, *overlap.rest])
    steps = _Steps(loop, inner, of_tile, of_step, stages)
    first = [asynchronous(c) for c in parts.copies if written([c]) & used]
    late = [asynchronous(c) for c in parts.copies if not written([c]) & used]
    rows = [asynchronous(c) for c in copies]
    done = _Pipelined(steps, rows, first, late).around(tile, overlap)
    kept = [b for b in (*buffers, *parts.others) if b not in of_tile]
    larger = [b for found in (of_tile, of_step) for b, _ in found.values()]
    return Alloc((*kept, *larger), done)


def _are_suited(loop: For, inner: For, stages: int) -> bool:
    """Whether the numbers of tiles and iterations are known, and versions the same in each tile."""
    if not isinstance(loop.extent, Const) or not isinstance(inner.extent, Const):
        return False
    count = int(inner.extent.value)
    return loop.extent.value > 1 and count > 1 and count >= stages and count % stages == 0


def _taken_apart(before: Sequence[Stmt], after: Sequence[Stmt], overlap: Overlap) -> _Tile | None:
    """The parts of a tile's start and end; None where the next tile's first iteration accesses what
    these still need."""
    late = [*overlap.late, *overlap.finish_late]
    end_early, end = _apart(after, late)
    begin, begin_late = _apart(before, [*late, *end])
    moved = [*overlap.early, *overlap.finish_early, *overlap.between]
    if any(meet(a, b) for a in (*begin_late, *end) for b in moved):
        return None
    return _Tile(begin, begin_late, end_early, end)


def _apart(statements: Sequence[Stmt], others: Sequence[Stmt]) -> tuple[list[Stmt], list[Stmt]]:
    """The statements that may be moved past others, and those that may not."""
    free, bound = list[Stmt](), list[Stmt]()
    for stmt in statements:
        (bound if any(meet(stmt, o) for o in (*others, *bound)) else free).append(stmt)
    return free, bound


class _Steps(NamedTuple):
    """The loops over tiles and over iterations, and the versions of what they copy."""

    tiles: For
    inner: For
    of_tile: Enlarged
    of_step: Enlarged
    versions: int

    @property
    def iterations(self) -> int:
        """Iterations of a tile."""
        assert isinstance(self.inner.extent, Const)
        return int(self.inner.extent.value)

    def at(self, tile: Expr, step: Expr, statements: Sequence[Stmt]) -> list[Stmt]:
        """Statements of an iteration, using its versions of what is copied."""
        own = (redirected(s, self.of_step, self.inner.var % self.versions) for s in statements)
        placed = (redirected(s, self.of_tile, self.tiles.var % _TILES) for s in own)
        values = {self.tiles.var: tile, self.inner.var: step}
        return [renew(s, values) for s in placed]


class _Pipelined(NamedTuple):
    """Builds a loop over tiles; holds the copies for a tile, for an iteration's first product, and
    for its second one."""

    steps: _Steps
    rows: list[Stmt]
    first: list[Stmt]
    late: list[Stmt]

    @property
    def ahead(self) -> int:
        return self.steps.versions - 1

    @property
    def takes_turns(self) -> bool:
        return threads_of(self.steps.inner) == (WARP, GROUP, 2)

    def around(self, tile: _Tile, overlap: Overlap) -> Stmt:
        """All tiles."""
        steps, loop, zero = self.steps, self.steps.tiles, const(0)
        last, coming = const(steps.iterations - 1), loop.var + 1
        ready = [arrived(steps.versions)]
        if self.takes_turns:
            ready.append(effect("groups_arrive", const(-1)))
        filling = steps.at(zero, zero, self.rows)
        for k in range(steps.versions):
            filling += self._copies(zero, const(k))
        begun = [
            *filling,
            *ready,
            *steps.at(zero, zero, [*tile.begin, *tile.begin_late]),
            *self._meeting(zero, zero),
            *steps.at(zero, zero, overlap.first(self._arrival())),
        ]
        crossing = [
            *self._meeting(coming, zero),
            *self._copies(coming, const(self.ahead)),
            *steps.at(loop.var, last, tile.end_early),
            *steps.at(coming, zero, [*tile.begin, *overlap.early]),
            *steps.at(loop.var, last, overlap.late),
            *steps.at(coming, zero, [*overlap.finish_but_latest(), *overlap.between]),
            *steps.at(loop.var, last, overlap.finish_late),
            *steps.at(coming, zero, self._arrival()),
            *steps.at(loop.var, last, tile.end),
            *steps.at(coming, zero, [*tile.begin_late, *overlap.rest]),
        ]
        ending = [
            *self._meeting(coming, zero),
            *steps.at(loop.var, last, [*overlap.late, *overlap.finish_late]),
            *steps.at(loop.var, last, [*tile.end_early, *tile.end]),
        ]
        border = If(coming < loop.extent, seq(*crossing), seq(*ending))
        plain = {k: v for k, v in loop.annotations.items() if k != STAGES}
        body = seq(self._inside(overlap), border)
        return seq(*begun, replace(loop, body=body, annotations=plain))

    def _inside(self, overlap: Overlap) -> Stmt:
        """The iterations of a tile except the first."""
        inner, tile = self.steps.inner, self.steps.tiles.var
        step = inner.var + 1
        body = seq(
            *self._meeting(tile, step),
            *self._copies(tile, step + self.ahead),
            *self.steps.at(tile, step, overlap.early),
            *self.steps.at(tile, inner.var, overlap.late),
            *self.steps.at(tile, step, overlap.later(self._arrival())),
        )
        plain = {k: v for k, v in inner.annotations.items() if k != STAGES}
        return replace(inner, extent=const(self.steps.iterations - 1), body=body, annotations=plain)

    def _copies(self, tile: Expr, step: Expr) -> list[Stmt]:
        """The copies of an iteration, which may be one of the next tile: those of the second
        product are an iteration late."""
        steps, count = self.steps, self.steps.iterations
        tiles, coming = steps.tiles.extent, tile + 1
        for_next = [
            If(Binary("eq", step, const(count)), seq(*steps.at(coming, const(0), self.rows))),
            *steps.at(coming, step - count, self.first),
        ]
        own = seq(*steps.at(tile, step, self.first))
        done: list[Stmt] = [If(step < count, own, If(coming < tiles, seq(*for_next)))]
        if self.late:
            place = step - 1
            there = seq(*steps.at(coming, place - count, self.late))
            here = seq(*steps.at(tile, place, self.late))
            within = If(place < count, here, If(coming < tiles, there))
            done.append(If(place >= 0, within))
        return [*done, commit()]

    def _number(self, tile: Expr, step: Expr) -> Expr:
        return tile * self.steps.iterations + step

    def _meeting(self, tile: Expr, step: Expr) -> list[Stmt]:
        """Before an iteration: wait until its copies are there."""
        if self.takes_turns:
            return [effect("groups_await", self._number(tile, step) - 1)]
        return [arrived(self.ahead), barrier()]

    def _arrival(self) -> list[Stmt]:
        """After the sums of an iteration: its group no longer needs their operands."""
        number = self._number(self.steps.tiles.var, self.steps.inner.var)
        return [arrived(self.ahead), effect("groups_arrive", number)] if self.takes_turns else []
