"""Move conditions that tiles share out of their inner loops.

    for io: for k: for ii in unrolled(4): if io * 4 + ii < n: …
    -->
    for io:
        if io * 4 + 3 < n:  for k: for ii in unrolled(4): …              the whole tile is inside
        else:               for k: for ii in unrolled(4): if io * 4 + ii < n: …

The condition of the whole tile is the guard at the worst values of the unrolled and vectorized
loops between; it is tested where the variables that are left are known. Windows over an image have
a third version, for tiles that are inside along all but the innermost dimension: its few loads at
the edge are masked. A tile whose rows are summed up over a loop has versions with fewer rows
instead (`lower.tile_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.arith import Ranges, conjuncts, knowing_nothing, prove, simplify, symbolic_bounds
from tilewright.ir import (
    TRUE,
    Alloc,
    Binary,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    all_of,
    child_exprs,
    child_stmts,
    const,
    free_vars,
    is_const,
    loads_in,
    map_children,
    map_expr,
    map_exprs,
    renew,
    seq,
    walk,
)
from tilewright.lower.tile_rows import (
    TileRows,
    from_row,
    parted,
    repeats_rows,
    rows_of_tile,
    statements_of,
    uses_of_buffers,
    with_rows,
)

#: Conditions, each with what makes it true for a whole tile.
Guards = dict[Expr, Expr]


def hoist_guards(function: Function) -> Function:
    """Guards of tiles are tested once for the tile where possible."""
    ranges = Ranges.for_function(function)
    scope = frozenset(function.dims) | {p for p in function.params if isinstance(p, Var)}
    hoister = _Hoister(set(), uses_of_buffers(function.body))
    return function.with_body(hoister.stmt(function.body, ranges, scope))


class _Hoister:
    """`settled` are guards that an enclosing test decides already; `uses` counts the uses of each
    buffer; `inner` is the variable of the loop whose tiles are considered. What threads of a device
    do has no versions by rows: their sums are in registers, which have no addresses."""

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
        """The loop's body, in versions if it has guards that are best decided here."""
        found = dict(_guards(loop.body, ranges, scope, frozenset()))
        found.update(_masks_of_sums(loop, scope))
        waiting = [s for s in statements_of(loop.body) if _deeper_loop_decides(s, scope)]
        settled_later = {c for s in waiting for inner in walk(s) for c in _conditions(inner)}
        here = {g: w for g, w in found.items() if g not in self.settled | settled_later}
        if not any(loop.var in free_vars(whole) for whole in here.values()):
            return self.stmt(loop.body, ranges, scope)
        # A guard that no whole tile satisfies stays where it is.
        hopeful = {g: w for g, w in here.items() if not is_const(simplify(w, ranges), False)}
        settled = self.settled | (set(here) - set(hopeful))
        hoister = _Hoister(settled, self.uses, loop.var, by_threads=self.by_threads)
        return hoister.versions(loop.body, hopeful, ranges, scope)

    def versions(self, body: Stmt, guards: Guards, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
        """`body` with, in place of what the guards stand in, versions with and without them."""
        if isinstance(body, Alloc):
            return replace(body, body=self.versions(body.body, guards, ranges, scope))
        rows = None if self.by_threads else rows_of_tile(body, guards)
        if rows is not None:
            before, tile, after = parted(body, rows.guards)
            before, tile = _with_start(before, tile)
            before, after = (self.stmt(seq(*part), ranges, scope) for part in (before, after))
            return seq(before, self._by_rows(tile, rows, ranges, scope), after)
        runs = _runs(body, guards) if isinstance(body, Seq) else [body]
        if len(runs) > 1:
            return seq(*(self.versions(run, guards, ranges, scope) for run in runs))
        here = {g: w for g, w in guards.items() if _holds(body, {g})}
        if not here:
            return self.stmt(body, ranges, scope)
        settled = _Hoister(self.settled | set(guards), self.uses, by_threads=self.by_threads)
        groups = self._groups(body, here)
        made = settled.stmt(_outside(body, groups[0]), ranges, scope)
        for some in groups:
            whole = simplify(all_of(*dict.fromkeys(some.values())), ranges)
            if is_const(whole, False):
                continue
            fast = renew(_without(body, set(some)))
            fast = settled.stmt(fast, ranges.assuming(whole), scope)
            made = fast if prove(whole, ranges) else If(whole, fast, made)
        return made

    def _groups(self, body: Stmt, guards: Guards) -> list[Guards]:
        """The guards that versions of `body` are without: all, or those of outer dimensions."""
        masks = {c for s in walk(body) for c in _masks(s)}
        outer = {g: w for g, w in guards.items() if self.inner not in free_vars(w)}
        return [outer, guards] if outer and outer.keys() < guards.keys() <= masks else [guards]

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
        """All rows, or else a tile in which only loops that sum rows up have versions.

        What comes before and after sums is done once, and is much code where it is an activation:
        at the edge it is there once, and tests every row.
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
        if isinstance(tile, Seq | Alloc):
            return map_children(tile, lambda s: self._at_edge(s, rows, ranges, scope))
        if repeats_rows(tile, rows, ranges):
            return self._by_counts(tile, rows, range(1, rows.most), ranges, scope)
        settled = _Hoister(self.settled | rows.guards, self.uses, self.inner)
        return settled.stmt(tile, ranges, scope)

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
        """The buffers in registers that a tile alone uses; None where its rows cannot be computed
        by parts: others use some as well, or something else is done than rows of it."""
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
        most, *others = rows.parts
        front = simplify(rows.room >= most, ranges)
        first = self._of_rows(with_rows(tile, rows, most), ranges.assuming(front), scope)
        parts = [If(front, first, None)]
        for count in others:
            there = simplify(rows.room % (2 * count) >= count, ranges)
            start = Var("first_row", rows.room.dtype)
            known = ranges.assuming(there).with_bounds(start, 0, rows.most - count)
            known = known.assuming(rows.room - start >= count)
            version = from_row(with_rows(tile, rows, count), rows, start, own)
            done = self._of_rows(version, known, scope | {start})
            behind = simplify(rows.room // (2 * count) * (2 * count), ranges)
            parts.append(If(there, Let(start, behind, done), None))
        # A block of tiles may end before this one.
        some = simplify(rows.room >= 1, ranges)
        fewer = seq(*parts)
        return If(enough, full, fewer if prove(some, ranges) else If(some, fewer, None))

    def _of_rows(self, tile: Stmt, known: Ranges, scope: frozenset[Var]) -> Stmt:
        """A version of a tile, with its other guards hoisted."""
        version = renew(tile)
        guards = {
            g: whole
            for g, whole in _guards(version, known, scope, frozenset())
            if g not in self.settled
        }
        return self.versions(version, guards, known, scope)


def _with_start(before: list[Stmt], tile: Stmt) -> tuple[list[Stmt], Stmt]:
    """The tile together with what its sums start from, where that comes just before it."""
    used = {b for b in uses_of_buffers(tile) if b.scope == "local"}
    count = len(before)
    while count and not used.isdisjoint(uses_of_buffers(before[count - 1])):
        count -= 1
    return before[:count], seq(*before[count:], tile)


def _runs(body: Seq, guards: Guards) -> list[Stmt]:
    """Statements in a row that ask the same of whole tiles, together."""
    runs: list[tuple[set[Expr], list[Stmt]]] = []
    for stmt in body.statements:
        wanted = {whole for g, whole in guards.items() if _holds(stmt, {g})}
        if runs and runs[-1][0] == wanted:
            runs[-1][1].append(stmt)
        else:
            runs.append((wanted, [stmt]))
    return [seq(*statements) for _, statements in runs]


def _holds(stmt: Stmt, guards: set[Expr]) -> bool:
    return any(c in guards for s in walk(stmt) for c in _conditions(s))


def _deeper_loop_decides(body: Stmt, scope: frozenset[Var]) -> bool:
    """Whether some guard needs a variable that a loop further in binds: then all wait for it."""
    for stmt in _loops(body):
        inner = dict(_guards(stmt.body, knowing_nothing(), scope | {stmt.var}, frozenset()))
        if any(stmt.var in free_vars(g) for g in inner):
            return True
    return False


def _loops(body: Stmt) -> Iterator[For]:
    """The loops below that are neither unrolled nor vectorized."""
    pending = [body]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, For) and stmt.kind not in ("vectorized", "unrolled"):
            yield stmt
        pending.extend(child_stmts(stmt))


def _guards(
    stmt: Stmt, ranges: Ranges, scope: frozenset[Var], tile: frozenset[Var]
) -> Iterator[tuple[Expr, Expr]]:
    """Conditions below that involve tile loops, each with the condition of the whole tile."""
    if isinstance(stmt, For):
        ranges = ranges.with_extent(stmt.var, stmt.extent)
        if stmt.kind in ("vectorized", "unrolled"):
            tile = tile | {stmt.var}
    for condition in _conditions(stmt):
        if tile.isdisjoint(free_vars(condition)):
            continue
        whole = _for_whole_tile(condition, ranges, tile)
        if whole is not None and free_vars(whole) <= scope:
            yield condition, whole
    for child in child_stmts(stmt):
        yield from _guards(child, ranges, scope, tile)


def _masks_of_sums(loop: For, scope: frozenset[Var]) -> Iterator[tuple[Expr, Expr]]:
    """Masks that all of an innermost loop's body shares, where its iterations are summed up in a
    tile: rows of windows that lie outside of an image."""
    inside = list(walk(loop.body))
    stored = [i for s in inside if isinstance(s, Store) for i in s.indices]
    if any(_loops(loop.body)) or any(loop.var in free_vars(i) for i in stored):
        return
    for mask in (c for s in inside for c in _masks(s)):
        if loop.var in free_vars(mask) and free_vars(mask) <= scope and not loads_in(mask):
            yield mask, mask


def _conditions(stmt: Stmt) -> Iterator[Expr]:
    """The conditions of branches, and the masks of loads."""
    if isinstance(stmt, If):
        yield from conjuncts(stmt.condition)
    yield from _masks(stmt)


def _masks(stmt: Stmt) -> Iterator[Expr]:
    for expr in child_exprs(stmt):
        for load in loads_in(expr):
            if load.mask is not None:
                yield from conjuncts(load.mask)


def _for_whole_tile(condition: Expr, ranges: Ranges, tile: frozenset[Var]) -> Expr | None:
    """What makes `condition` true for all values of the tile's variables."""
    if not isinstance(condition, Binary) or not condition.a.dtype.is_integer:
        return None
    if loads_in(condition) or condition.op not in ("lt", "le", "gt", "ge"):
        return None
    difference = simplify(condition.a - condition.b, ranges)
    ends = symbolic_bounds(difference, ranges, tile & free_vars(difference))
    if ends is None:
        return None
    worst = ends[1] if condition.op in ("lt", "le") else ends[0]
    whole = simplify(Binary(condition.op, worst, const(0)), ranges)
    return whole if tile.isdisjoint(free_vars(whole)) else None


def _outside(body: Stmt, guards: Guards) -> Stmt:
    """`body` where not all guards hold, if these ask the same of all of a tile.

    What would be loaded where all of them do is zero.
    """
    if any(whole is not guard for guard, whole in guards.items()):
        return body
    memo: dict[Expr, Expr] = {}

    def fails(condition: Expr | None) -> bool:
        return condition is not None and guards.keys() <= set(conjuncts(condition))

    def on_node(node: Expr) -> Expr | None:
        if isinstance(node, Select) and fails(node.condition):
            return node.b
        return const(0, node.dtype) if isinstance(node, Load) and fails(node.mask) else None

    return map_exprs(body, lambda e: map_expr(e, on_node, memo))


def _without(body: Stmt, guards: set[Expr]) -> Stmt:
    """`body` where the guards are known to hold."""
    memo: dict[Expr, Expr] = {}

    def on_node(node: Expr) -> Expr | None:
        if node in guards:
            return TRUE
        if isinstance(node, Binary) and node.op == "and" and (node.a is TRUE or node.b is TRUE):
            return node.b if node.a is TRUE else node.a
        if isinstance(node, Load) and node.mask is TRUE:
            return Load(node.buffer, node.indices)
        return None

    def on_expr(expr: Expr) -> Expr:
        return map_expr(expr, on_node, memo)

    def copy(stmt: Stmt) -> Stmt:
        if isinstance(stmt, If):
            condition = simplify(on_expr(stmt.condition))
            if condition is TRUE:
                return copy(stmt.then)
        return map_children(stmt, copy, on_expr)

    return copy(body)
