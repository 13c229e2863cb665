"""Hoist conditions that a whole tile shares out of its inner loops.

    for io: for k: for ii in unrolled(4): if io * 4 + ii < n: …
    -->
    for io:
        if io * 4 + 3 < n:  for k: for ii in unrolled(4): …              the whole tile is inside
        else:               for k: for ii in unrolled(4): if io * 4 + ii < n: …

The condition of the whole tile is the guard at the worst values of the unrolled and vectorized
loops between; it is tested where its other variables are known. Windows over an image have a third
version, for tiles inside along all but the innermost dimension: the few loads at that edge are
masked. A tile whose rows are summed over a loop has versions with fewer rows instead
(`lower.tile_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.arith import Ranges, prove, simplify
from tilewright.ir import (
    Alloc,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    Var,
    all_of,
    free_vars,
    is_const,
    loads_in,
    map_children,
    renew,
    seq,
    walk,
)
from tilewright.lower.conditions import (
    Guards,
    conditions_of,
    deeper_loop_decides,
    does_more,
    guards_in,
    holds,
    masks,
    masks_of_sums,
    outside,
    statements_of,
    without,
)
from tilewright.lower.tile_rows import (
    TileRows,
    branches_on,
    from_row,
    parted,
    repeats_rows,
    rows_of_tile,
    uses_of_buffers,
    with_copies,
    with_rows,
)


def hoist_guards(function: Function) -> Function:
    """Test guards of tiles once per tile where possible."""
    ranges = Ranges.for_function(function)
    scope = frozenset(function.dims) | {p for p in function.params if isinstance(p, Var)}
    hoister = _Hoister(set(), uses_of_buffers(function.body))
    return function.with_body(hoister.stmt(function.body, ranges, scope))


class _Hoister:
    """`settled` are guards that an enclosing test has decided; `uses` counts the uses of each
    buffer; `inner` is the variable of the loop whose tiles are considered. Code of GPU threads gets
    no versions by rows: its sums are in registers, which have no addresses."""

    def __init__(
        self,
        settled: set[Expr],
        uses: Mapping[Buffer, int],
        inner: Var | None = None,
        *,
        by_threads: bool = False,
    ) -> None:
        self.settled, self.uses, self.inner, self.by_threads = settled, uses, inner, by_threads

    def stmt(self, stmt: Stmt, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
        if isinstance(stmt, Let):
            scope = scope | {stmt.var}
        if not isinstance(stmt, For):
            return map_children(stmt, lambda s: self.stmt(s, ranges, scope))
        if stmt.kind == "thread" and not self.by_threads:
            device = _Hoister(self.settled, self.uses, self.inner, by_threads=True)
            return device.stmt(stmt, ranges, scope)
        inner_ranges, inner_scope = ranges.with_extent(stmt.var, stmt.extent), scope | {stmt.var}
        if stmt.kind in ("vectorized", "unrolled"):
            return map_children(stmt, lambda s: self.stmt(s, inner_ranges, inner_scope))
        body = self._split(stmt, inner_ranges, inner_scope)
        return map_children(stmt, lambda _: body)

    def _split(self, loop: For, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
        """The loop's body, in versions if it has guards that are best tested here."""
        found = dict(guards_in(loop.body, ranges, scope, frozenset()))
        found.update(masks_of_sums(loop, scope))
        waiting = [s for s in statements_of(loop.body) if deeper_loop_decides(s, scope)]
        settled_later = {c for s in waiting for inner in walk(s) for c in conditions_of(inner)}
        here = {g: w for g, w in found.items() if g not in self.settled | settled_later}
        if not any(loop.var in free_vars(whole) for whole in here.values()):
            return self.stmt(loop.body, ranges, scope)
        # A guard that no whole tile satisfies stays where it is.
        hopeful = {g: w for g, w in here.items() if not is_const(simplify(w, ranges), False)}
        settled = self.settled | (set(here) - set(hopeful))
        hoister = _Hoister(settled, self.uses, loop.var, by_threads=self.by_threads)
        return hoister.versions(loop.body, hopeful, ranges, scope)

    def versions(self, body: Stmt, guards: Guards, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
        """`body` with its guarded parts in versions with and without the guards."""
        if isinstance(body, Alloc):
            return replace(body, body=self.versions(body.body, guards, ranges, scope))
        if isinstance(body, For) and does_more(body, guards):
            inside = ranges.with_extent(body.var, body.extent), scope | {body.var}
            return map_children(body, lambda s: self.versions(s, guards, *inside))
        rows = None if self.by_threads else rows_of_tile(body, guards)
        if rows is not None and repeats_rows(body, rows, ranges):
            before, tile, after = parted(body, rows.guards)
            before, tile = _with_start(before, tile)
            before, after = (self.stmt(seq(*part), ranges, scope) for part in (before, after))
            return seq(before, self._by_rows(tile, rows, ranges, scope), after)
        runs = _runs(body, guards) if isinstance(body, Seq) else [body]
        if len(runs) > 1:
            return seq(*(self.versions(run, guards, ranges, scope) for run in runs))
        here = {g: w for g, w in guards.items() if holds(body, {g})}
        if not here:
            return self.stmt(body, ranges, scope)
        settled = _Hoister(self.settled | set(guards), self.uses, by_threads=self.by_threads)
        groups = self._groups(body, here)
        made = settled.stmt(outside(body, groups[0]), ranges, scope)
        for some in groups:
            whole = simplify(all_of(*dict.fromkeys(some.values())), ranges)
            if is_const(whole, False):
                continue
            fast = renew(without(body, set(some)))
            fast = settled.stmt(fast, ranges.assuming(whole), scope)
            made = fast if prove(whole, ranges) else If(whole, fast, made)
        return made

    def _groups(self, body: Stmt, guards: Guards) -> list[Guards]:
        """The sets of guards to drop in versions of `body`: those of outer dimensions, and all."""
        masked = {c for s in walk(body) for c in masks(s)}
        outer = {g: w for g, w in guards.items() if self.inner not in free_vars(w)}
        return [outer, guards] if outer and outer.keys() < guards.keys() <= masked else [guards]

    def _by_rows(self, tile: Stmt, rows: TileRows, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
        """The tile in versions for the numbers of rows that it can have."""
        own = self._own_buffers(tile, rows)
        if own is not None and len(rows.counts()) > len(rows.parts):
            return self._by_parts(tile, rows, own, ranges, scope)
        if len(rows.counts()) > 2:
            return self._whole_or_edge(tile, rows, ranges, scope)
        return self._by_counts(tile, rows, rows.counts(), ranges, scope)

    def _whole_or_edge(
        self, tile: Stmt, rows: TileRows, ranges: Ranges, scope: frozenset[Var]
    ) -> Stmt:
        """All rows, or else an edge tile in which only loops that sum rows have versions.

        The code before and after sums may be long (an activation), so at the edge it exists once,
        and tests every row.
        """
        enough = simplify(rows.room >= rows.most, ranges)
        full = self._of_rows(with_rows(tile, rows, rows.most), ranges.assuming(enough), scope)
        if prove(enough, ranges):
            return full
        edge = self._at_edge(tile, rows, ranges, scope)
        # A block of tiles may end before this one.
        some = simplify(rows.room >= 1, ranges)
        return If(enough, full, edge if prove(some, ranges) else If(some, edge, None))

    def _at_edge(self, tile: Stmt, rows: TileRows, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
        buffers, statements = _flat(tile)
        first, last, copied = self._kept_sums(statements, rows)
        made = [self._statement_at_edge(s, rows, ranges, scope) for s in statements[:first]]
        if copied is not None:
            own = {b for b in uses_of_buffers(seq(*statements[first:last])) if b.scope == "local"}
            made += self._parts(seq(*statements[first:last]), copied, own, ranges, scope)
        made += [self._statement_at_edge(s, rows, ranges, scope) for s in statements[last:]]
        return Alloc(buffers, seq(*made)) if buffers else seq(*made)

    def _kept_sums(
        self, statements: Sequence[Stmt], rows: TileRows
    ) -> tuple[int, int, TileRows | None]:
        """The statements that sum rows in registers and copy the sums elsewhere, with the loops of
        these copies: they are computed in parts where there are many tiles per edge tile."""
        sums = {
            b
            for s in statements
            if branches_on(s, rows.guards)
            for b in uses_of_buffers(s)
            if b.scope == "local"
        }
        using = [k for k, s in enumerate(statements) if not sums.isdisjoint(uses_of_buffers(s))]
        if not using or not rows.are_many:
            return 0, 0, None
        first, last = using[0], using[-1] + 1
        tile = seq(*statements[first:last])
        copied = with_copies(tile, rows)
        if self._own_buffers(tile, copied) is None:
            return 0, 0, None
        return first, last, copied

    def _statement_at_edge(
        self, stmt: Stmt, rows: TileRows, ranges: Ranges, scope: frozenset[Var]
    ) -> Stmt:
        if repeats_rows(stmt, rows, ranges):
            return self._by_counts(stmt, rows, range(1, rows.most), ranges, scope)
        settled = _Hoister(self.settled | rows.guards, self.uses, self.inner)
        return settled.stmt(stmt, ranges, scope)

    def _by_counts(
        self,
        tile: Stmt,
        rows: TileRows,
        counts: Sequence[int],
        ranges: Ranges,
        scope: frozenset[Var],
    ) -> Stmt:
        """A version for each of these numbers of rows."""
        made: Stmt | None = None
        for count in counts:
            enough = simplify(rows.room >= count, ranges)
            known = ranges.assuming(enough)
            if count < rows.most:
                known = known.assuming(rows.room <= count)
            done = self._of_rows(with_rows(tile, rows, count), known, scope)
            made = done if prove(enough, ranges) else If(enough, done, made)
        assert made is not None
        return made

    def _own_buffers(self, tile: Stmt, rows: TileRows) -> set[Buffer] | None:
        """The register buffers that only this tile uses; None where its rows cannot be computed in
        parts: other code uses some of them, or the tile does more than compute its rows."""
        inside = uses_of_buffers(tile)
        stores = [s for s in walk(tile) if isinstance(s, Store)]
        own = {s.buffer for s in stores if s.buffer.scope == "local"}
        others = [s for s in stores if not any(rows.loops & free_vars(i) for i in s.indices)]
        only_start = all(s.buffer in own and not loads_in(s.value) for s in others)
        return own if only_start and all(inside[b] == self.uses.get(b) for b in own) else None

    def _by_parts(
        self, tile: Stmt, rows: TileRows, own: set[Buffer], ranges: Ranges, scope: frozenset[Var]
    ) -> Stmt:
        """All rows, or else 4, 2 and 1 of them one after the other, as many as there are."""
        enough = simplify(rows.room >= rows.most, ranges)
        full = self._of_rows(with_rows(tile, rows, rows.most), ranges.assuming(enough), scope)
        if prove(enough, ranges):
            return full
        # A block of tiles may end before this one.
        some = simplify(rows.room >= 1, ranges)
        fewer = seq(*self._parts(tile, rows, own, ranges, scope))
        return If(enough, full, fewer if prove(some, ranges) else If(some, fewer, None))

    def _parts(
        self, tile: Stmt, rows: TileRows, own: set[Buffer], ranges: Ranges, scope: frozenset[Var]
    ) -> list[Stmt]:
        """Versions for 4, 2 and 1 rows, each executed if the number of rows includes it."""
        most, *others = rows.parts
        front = simplify(rows.room >= most, ranges)
        first = self._of_rows(with_rows(tile, rows, most), ranges.assuming(front), scope)
        parts: list[Stmt] = [If(front, first, None)]
        for count in others:
            there = simplify(rows.room % (2 * count) >= count, ranges)
            start = Var("first_row", rows.room.dtype)
            known = ranges.assuming(there).with_bounds(start, 0, rows.most - count)
            known = known.assuming(rows.room - start >= count)
            version = from_row(with_rows(tile, rows, count), rows, start, own)
            done = self._of_rows(version, known, scope | {start})
            behind = simplify(rows.room // (2 * count) * (2 * count), ranges)
            parts.append(If(there, Let(start, behind, done), None))
        return parts

    def _of_rows(self, tile: Stmt, known: Ranges, scope: frozenset[Var]) -> Stmt:
        """A version of a tile, with its other guards hoisted."""
        version = renew(tile)
        guards = {
            g: whole
            for g, whole in guards_in(version, known, scope, frozenset())
            if g not in self.settled
        }
        return self.versions(version, guards, known, scope)


def _flat(stmt: Stmt) -> tuple[tuple[Buffer, ...], list[Stmt]]:
    """Consecutive statements, and the buffers allocated for some of them."""
    if isinstance(stmt, Alloc):
        buffers, statements = _flat(stmt.body)
        return (*stmt.buffers, *buffers), statements
    if not isinstance(stmt, Seq):
        return (), [stmt]
    parts = [_flat(s) for s in stmt.statements]
    return tuple(b for buffers, _ in parts for b in buffers), [s for _, part in parts for s in part]


def _with_start(before: list[Stmt], tile: Stmt) -> tuple[list[Stmt], Stmt]:
    """The tile together with the initialisation of its sums, if that comes right before it."""
    used = {b for b in uses_of_buffers(tile) if b.scope == "local"}
    count = len(before)
    while count and not used.isdisjoint(uses_of_buffers(before[count - 1])):
        count -= 1
    return before[:count], seq(*before[count:], tile)


def _runs(body: Seq, guards: Guards) -> list[Stmt]:
    """Group consecutive statements that have the same whole-tile conditions."""
    runs: list[tuple[set[Expr], list[Stmt]]] = []
    for stmt in body.statements:
        wanted = {whole for g, whole in guards.items() if holds(stmt, {g})}
        if runs and runs[-1][0] == wanted:
            runs[-1][1].append(stmt)
        else:
            runs.append((wanted, [stmt]))
    return [seq(*statements) for _, statements in runs]
