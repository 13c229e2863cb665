"""Tiles with fewer rows than others, at the edge: versions of 1, 2, 4, … rows.

    for k: for ii in unrolled(7): if io * 7 + ii < n: …
    -->
    room = n - io * 7
    if room >= 7:             for k: for ii in unrolled(7): …
    else:
        if room >= 4:         for k: for ii in unrolled(4): …
        if room % 4 >= 2:     for k: for ii in unrolled(2): …     from row room // 4 * 4 on
        if room % 2 >= 1:     for k: for ii in unrolled(1): …     from row room // 2 * 2 on

Where a tile's sums are read outside it, or more is done with them than storing, its loops get a
version for each number of rows instead. All this is only for rows that a loop tests repeatedly:
elsewhere a test costs little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tilewright.arith import Ranges, bounds, conjuncts, linear
from tilewright.ir import (
    TRUE,
    Alloc,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Load,
    Stmt,
    Store,
    Var,
    all_of,
    child_exprs,
    child_stmts,
    const,
    free_vars,
    loads_in,
    map_children,
    map_expr,
    map_stmt,
    seq,
    substitute,
    walk,
)
from tilewright.lower.conditions import statements_of

#: The most rows of all versions together; tiles that would need more keep their conditions.
_MOST = 36
#: A loop of at most this many iterations may test every row in each of them.
_FEW = 8


class TileRows(NamedTuple):
    """The rows of a tile: the most there may be, and how many are in bounds."""

    most: int
    room: Expr
    #: The unrolled loops over them, and the conditions that test whether a row is in bounds.
    loops: frozenset[Var]
    guards: frozenset[Expr]

    def counts(self) -> Sequence[int]:
        """The possible numbers of rows of a tile, in ascending order."""
        room = linear(self.room)
        if all(c % self.most == 0 for c in room.terms.values()):
            left = room.constant % self.most
            return [left, self.most] if left else [self.most]
        return range(1, self.most + 1)

    @property
    def are_many(self) -> bool:
        """Whether rows run over several dimensions of unknown sizes fused into one: then there are
        many tiles per edge tile."""
        return any(isinstance(a, Binary) and a.op == "mul" for a in linear(self.room).terms)

    @property
    def parts(self) -> Sequence[int]:
        """Numbers of rows, descending, subsets of which sum to any number below the most."""
        return [1 << k for k in reversed(range((self.most - 1).bit_length()))]


class _Row(NamedTuple):
    """A condition on a row of a tile."""

    loop: For
    guard: Expr
    room: Expr
    is_repeated: bool


def rows_of_tile(body: Stmt, guards: Collection[Expr]) -> TileRows | None:
    """The rows that the loops in `body` sum and `guards` test; None if there are none."""
    found = [row for row in _rows(body, (), repeated=False) if row.guard in guards]
    repeated = next((row for row in found if row.is_repeated), None)
    if repeated is None:
        return None
    alike = [r for r in found if r.room is repeated.room and r.loop.extent is repeated.loop.extent]
    assert isinstance(repeated.loop.extent, Const)
    rows = TileRows(
        int(repeated.loop.extent.value),
        repeated.room,
        frozenset(row.loop.var for row in alike),
        frozenset(row.guard for row in alike),
    )
    return rows if sum(rows.counts()) <= _MOST else None


def repeats_rows(stmt: Stmt, rows: TileRows, ranges: Ranges) -> bool:
    """Whether a loop in `stmt` sums these rows, or tests them many times."""
    loops = [s for s in walk(stmt) if isinstance(s, For) and s.kind == "serial"]
    return any(
        _is_long(loop, ranges) or _stores_again(loop)
        for loop in loops
        if branches_on(loop, rows.guards)
    )


def _is_long(loop: For, ranges: Ranges) -> bool:
    most = bounds(loop.extent, ranges).high
    return most is None or most > _FEW


def _stores_again(loop: For) -> bool:
    """Whether iterations store to the same elements, of buffers that outlive them."""
    own = {b for s in walk(loop.body) if isinstance(s, Alloc) for b in s.buffers}
    stores = (s for s in walk(loop.body) if isinstance(s, Store) and s.buffer not in own)
    return any(all(loop.var not in free_vars(i) for i in s.indices) for s in stores)


def _rows(stmt: Stmt, tile: tuple[For, ...], *, repeated: bool) -> Iterator[_Row]:
    if isinstance(stmt, For) and stmt.kind in ("unrolled", "vectorized"):
        tile = (*tile, stmt)
    elif isinstance(stmt, For):
        repeated = True
    if isinstance(stmt, If) and stmt.otherwise is None:
        for condition in conjuncts(stmt.condition):
            found = _room(condition, tile)
            if found is not None:
                loop, room = found
                yield _Row(loop, condition, room, repeated)
    for child in child_stmts(stmt):
        yield from _rows(child, tile, repeated=repeated)


def _room(condition: Expr, tile: Sequence[For]) -> tuple[For, Expr] | None:
    """The loop over rows, and the number of them for which `condition` holds."""
    if not isinstance(condition, Binary) or condition.op != "lt":
        return None
    loops = [loop for loop in tile if loop.var in free_vars(condition)]
    if len(loops) != 1 or loops[0].kind != "unrolled" or not condition.a.dtype.is_integer:
        return None
    (loop,) = loops
    left = linear(condition.b - condition.a)
    if not isinstance(loop.extent, Const) or left.terms.get(loop.var) != -1:
        return None
    room = left.without(loop.var)
    return None if any(loop.var in free_vars(a) for a in room.terms) else (loop, room.expr())


def parted(body: Stmt, guards: Collection[Expr]) -> tuple[list[Stmt], Stmt, list[Stmt]]:
    """The statements before those that test `guards`, these together, and those after."""
    statements = statements_of(body)
    asking = [k for k, s in enumerate(statements) if branches_on(s, guards)]
    first, last = asking[0], asking[-1] + 1
    return [*statements[:first]], seq(*statements[first:last]), [*statements[last:]]


def branches_on(stmt: Stmt, guards: Collection[Expr]) -> bool:
    """Whether a branch in `stmt` tests one of the guards; masks of loads do not count."""
    branches = (s for s in walk(stmt) if isinstance(s, If))
    return any(c in guards for branch in branches for c in conjuncts(branch.condition))


def with_rows(stmt: Stmt, rows: TileRows, count: int) -> Stmt:
    """The tile with only its first `count` rows, all of which are in bounds."""
    if isinstance(stmt, For) and stmt.var in rows.loops:
        stmt = replace(stmt, extent=Const(count, stmt.extent.dtype))
    if isinstance(stmt, If):
        condition = all_of(*(c for c in conjuncts(stmt.condition) if c not in rows.guards))
        if condition is TRUE:
            return with_rows(stmt.then, rows, count)
        stmt = replace(stmt, condition=condition)
    return map_children(stmt, lambda s: with_rows(s, rows, count))


def with_copies(tile: Stmt, rows: TileRows) -> TileRows:
    """Adds the unguarded loops over rows of register buffers: their initialisation, and copies of
    them. Copied rows that are out of bounds are read by nothing."""
    used = [(s.buffer, s.indices) for s in walk(tile) if isinstance(s, Store)]
    used += [(e.buffer, e.indices) for s in walk(tile) for x in child_exprs(s) for e in loads_in(x)]
    local = [(b, k, i) for b, indices in used if b.scope == "local" for k, i in enumerate(indices)]
    places = {(b, k) for b, k, i in local if i in rows.loops}
    along = {i for b, k, i in local if (b, k) in places and isinstance(i, Var)}
    whole = {s.var for s in walk(tile) if isinstance(s, For) and s.extent is const(rows.most)}
    return rows._replace(loops=rows.loops | (along & whole))


def from_row(stmt: Stmt, rows: TileRows, start: Var, own: Collection[Buffer]) -> Stmt:
    """The tile with its rows from `start` on; its `own` buffers begin with row `start`."""
    at_front = {start: const(0)}
    values = {var: var + start for var in rows.loops}
    memo: dict[Expr, Expr] = {}

    def front(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute(i, at_front) for i in indices)

    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Var):
            return values.get(e)
        if isinstance(e, Load) and e.buffer in own:
            return Load(e.buffer, front(e.indices), e.mask)
        return None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in own:
            return replace(s, indices=front(s.indices))
        return None

    return map_stmt(stmt, on_stmt, lambda e: map_expr(e, on_node, memo))


def uses_of_buffers(stmt: Stmt) -> Counter[Buffer]:
    """How often each buffer is read and written."""
    found = Counter[Buffer]()
    for inner in walk(stmt):
        if isinstance(inner, Store):
            found[inner.buffer] += 1
        found.update(load.buffer for e in child_exprs(inner) for load in loads_in(e))
    return found
