"""What primitives are built from: simplifying substitution, guards, fresh copies, new buffers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tilewright.arith import Ranges, conjuncts, prove, simplify
from tilewright.ir import (
    TRUE,
    Alloc,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Seq,
    Stmt,
    Var,
    all_of,
    as_expr,
    free_vars,
    map_children,
    map_stmt,
    renew,
    substitute,
    walk,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.handles import Result

#: Names are hints; those of loops that are split and fused repeatedly stay readable.
_NAME_LIMIT: Final = 24


class Edit(NamedTuple):
    """The result of a primitive: the edited function, handles for the user, sampled decisions."""

    function: Function
    results: tuple[Result, ...] = ()
    decision: Any = None


# ---- conditions ---------------------------------------------------------------------------------


def needed(conditions: Iterable[Expr], ranges: Ranges) -> Expr:
    """The conjunction of the conditions that neither `ranges` nor the other conditions imply."""
    kept: list[Expr] = []
    for condition in dict.fromkeys(conditions):
        condition = simplify(condition, ranges)
        if condition is not TRUE and condition not in kept and not prove(condition, ranges):
            kept.append(condition)
            ranges = ranges.assuming(condition)
    return all_of(*kept)


# ---- rewriting the inside of loops --------------------------------------------------------------


def rebind(stmt: Stmt, values: Mapping[Var, Expr], ranges: Ranges) -> Stmt:
    """`stmt` with loop variables replaced, changes simplified, and true predicates dropped."""

    def on_expr(expr: Expr) -> Expr:
        if free_vars(expr).isdisjoint(values):
            return expr
        return simplify(substitute(expr, values), ranges)

    inner = _inside(ranges, stmt, values)
    rebuilt = map_children(stmt, lambda s: rebind(s, values, inner), on_expr)
    if not isinstance(rebuilt, Block) or rebuilt.predicate is TRUE:
        return rebuilt
    kept = needed(conjuncts(rebuilt.predicate), ranges)
    return rebuilt if kept is rebuilt.predicate else replace(rebuilt, predicate=kept)


def _inside(ranges: Ranges, stmt: Stmt, values: Mapping[Var, Expr]) -> Ranges:
    if isinstance(stmt, For):
        return ranges.with_extent(stmt.var, substitute(stmt.extent, values))
    return ranges


def guard(stmt: Stmt, condition: Expr, ranges: Ranges) -> Stmt:
    """Run `stmt` only where `condition` holds: a predicate of its blocks, an `If` around the
    rest."""
    if isinstance(stmt, For):
        inner = ranges.with_extent(stmt.var, stmt.extent)
        return replace(stmt, body=guard(stmt.body, condition, inner))
    if isinstance(stmt, Seq | Alloc):
        return map_children(stmt, lambda s: guard(s, condition, ranges))
    if isinstance(stmt, Block):
        return replace(stmt, predicate=needed([*conjuncts(stmt.predicate), condition], ranges))
    return stmt if prove(condition, ranges) else If(condition, stmt)


# ---- names and copies ---------------------------------------------------------------------------


def fresh_name(hint: str, taken: Collection[str]) -> str:
    """`hint`, or `hint_1`, `hint_2`, … where that is taken."""
    if hint not in taken:
        return hint
    number = 1
    while f"{hint}_{number}" in taken:
        number += 1
    return f"{hint}_{number}"


def loop_name(*parts: str) -> str:
    """A name for a loop made of others; if it is too long, one based on the first of them."""
    name = "_".join(parts)
    return name if len(name) <= _NAME_LIMIT else f"{name.split('_')[0]}_{parts[-1][-1]}"


def fresh_copy(stmt: Stmt, taken: Collection[str]) -> Stmt:
    """`stmt` with fresh variables, buffers and block names, which are not in `taken`."""
    names = set(taken)

    def on_stmt(node: Stmt) -> Stmt | None:
        if not isinstance(node, Block):
            return None
        name = fresh_name(node.name, names)
        names.add(name)
        return replace(node, name=name)

    return map_stmt(renew(stmt), on_stmt)


def fresh_loops(loops: Iterable[For], *hidden: Var) -> tuple[list[For], dict[Var, Expr]]:
    """Copies of loops with fresh variables, and the old variables in terms of these."""
    values: dict[Var, Expr] = {}
    copies: list[For] = []
    for loop in loops:
        if loop.var in hidden:
            continue
        own = Var(loop.var.name, loop.var.dtype)
        copies.append(replace(loop, var=own, extent=substitute(loop.extent, values)))
        values[loop.var] = own
    return copies, values


# ---- the function around ------------------------------------------------------------------------


def with_buffers(function: Function, *buffers: Buffer) -> Function:
    """The function with more buffers in the allocation at its top."""
    body = function.body
    if isinstance(body, Alloc):
        return function.with_body(replace(body, buffers=(*body.buffers, *buffers)))
    return function.with_body(Alloc(tuple(buffers), body))


def with_outer_regions(function: Function, before: Tree) -> Function:
    """Recompute the regions of blocks around everything that changed since `before`.

    A block around a tensor intrinsic keeps its regions: an address inside says nothing about them.
    """
    return function.with_body(_refreshed(function.body, before))


def _refreshed(stmt: Stmt, before: Tree) -> Stmt:
    if stmt in before.parent:
        return stmt
    rebuilt = map_children(stmt, lambda s: _refreshed(s, before))
    if not isinstance(rebuilt, Block) or "tensor_intrin" in rebuilt.annotations:
        return rebuilt
    holds_blocks = any(isinstance(s, Block) for s in walk(rebuilt.body))
    return with_inferred_regions(rebuilt) if holds_blocks else rebuilt


def nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """`body` in nested `loops`, outermost first."""
    for loop in reversed(tuple(loops)):
        body = replace(loop, body=body)
    return body


def product(factors: Iterable[Expr | int]) -> Expr:
    """The simplified product of all factors."""
    result: Expr = as_expr(1)
    for factor in factors:
        result = simplify(result * factor)
    return result
