"""Guards of tiles: where conditions occur, what makes them true for a whole tile, and statements
simplified where they are known to hold or to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilewright.arith import Ranges, conjuncts, knowing_nothing, simplify, symbolic_bounds
from tilewright.ir import (
    TRUE,
    Alloc,
    Binary,
    Const,
    Expr,
    For,
    If,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    child_exprs,
    child_stmts,
    const,
    free_vars,
    loads_in,
    map_children,
    map_expr,
    map_exprs,
    walk,
)

#: Conditions, each with the one that makes it true for a whole tile.
Guards = dict[Expr, Expr]
#: With this many unguarded statements per iteration, testing a condition costs little.
_MUCH = 16


def statements_of(body: Stmt) -> Sequence[Stmt]:
    """The consecutive statements of a body, each with its own loops and guards."""
    if isinstance(body, Alloc):
        return statements_of(body.body)
    return body.statements if isinstance(body, Seq) else (body,)


def holds(stmt: Stmt, guards: set[Expr]) -> bool:
    """Whether a branch or the mask of a load in `stmt` tests one of the guards."""
    return any(c in guards for s in walk(stmt) for c in conditions_of(s))


def does_more(loop: For, guards: Guards) -> bool:
    """Whether each iteration does so much besides the guarded statements that it may test the
    guards: versions of the whole body would be much code."""
    if loop.kind != "serial":
        return False
    statements = statements_of(loop.body)
    return sum(_written_out(s) for s in statements if not holds(s, {*guards})) >= _MUCH


def _written_out(stmt: Stmt) -> int:
    """The number of statements when all unrolled loops are written out."""
    inside = sum(map(_written_out, child_stmts(stmt)))
    if isinstance(stmt, For) and stmt.kind == "unrolled" and isinstance(stmt.extent, Const):
        return int(stmt.extent.value) * inside
    return max(inside, 1)


def deeper_loop_decides(body: Stmt, scope: frozenset[Var]) -> bool:
    """Whether some guard needs a variable of a loop further in: then all wait for that loop."""
    for stmt in _loops(body):
        inner = dict(guards_in(stmt.body, knowing_nothing(), scope | {stmt.var}, frozenset()))
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


def guards_in(
    stmt: Stmt, ranges: Ranges, scope: frozenset[Var], tile: frozenset[Var]
) -> Iterator[tuple[Expr, Expr]]:
    """Conditions below that involve tile loops, each with the condition of the whole tile."""
    if isinstance(stmt, For):
        ranges = ranges.with_extent(stmt.var, stmt.extent)
        if stmt.kind in ("vectorized", "unrolled"):
            tile = tile | {stmt.var}
    for condition in conditions_of(stmt):
        if tile.isdisjoint(free_vars(condition)):
            continue
        whole = _for_whole_tile(condition, ranges, tile)
        if whole is not None and free_vars(whole) <= scope:
            yield condition, whole
    for child in child_stmts(stmt):
        yield from guards_in(child, ranges, scope, tile)


def masks_of_sums(loop: For, scope: frozenset[Var]) -> Iterator[tuple[Expr, Expr]]:
    """Masks shared by the whole body of an innermost loop whose iterations are summed in a tile:
    rows of windows that are outside an image."""
    inside = list(walk(loop.body))
    stored = [i for s in inside if isinstance(s, Store) for i in s.indices]
    if any(_loops(loop.body)) or any(loop.var in free_vars(i) for i in stored):
        return
    for mask in (c for s in inside for c in masks(s)):
        if loop.var in free_vars(mask) and free_vars(mask) <= scope and not loads_in(mask):
            yield mask, mask


def conditions_of(stmt: Stmt) -> Iterator[Expr]:
    """The conditions of branches, and the masks of loads."""
    if isinstance(stmt, If):
        yield from conjuncts(stmt.condition)
    yield from masks(stmt)


def masks(stmt: Stmt) -> Iterator[Expr]:
    for expr in child_exprs(stmt):
        for load in loads_in(expr):
            if load.mask is not None:
                yield from conjuncts(load.mask)


def _for_whole_tile(condition: Expr, ranges: Ranges, tile: frozenset[Var]) -> Expr | None:
    """The condition under which `condition` is true for all values of the tile's variables."""
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


def outside(body: Stmt, guards: Guards) -> Stmt:
    """`body` where some guard fails, if the guards are the same for the whole tile.

    Loads under all the guards then give zero.
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


def without(body: Stmt, guards: set[Expr]) -> Stmt:
    """`body` simplified for where the guards are known to hold."""
    memo: dict[Expr, Expr] = {}

    def on_node(node: Expr) -> Expr | None:
        if node in guards:
            return TRUE
        if isinstance(node, Binary) and node.op == "and" and (node.a is TRUE or node.b is TRUE):
            return node.b if node.a is TRUE else node.a
        if isinstance(node, Load) and node.mask is TRUE:
            return Load(node.buffer, node.indices)
        return None

    return _with_true_branches(body, lambda e: map_expr(e, on_node, memo))


def _with_true_branches(stmt: Stmt, on_expr: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with its expressions mapped, and without conditions that become true."""
    if isinstance(stmt, If):
        condition = simplify(on_expr(stmt.condition))
        if condition is TRUE:
            return _with_true_branches(stmt.then, on_expr)
    return map_children(stmt, lambda s: _with_true_branches(s, on_expr), on_expr)
