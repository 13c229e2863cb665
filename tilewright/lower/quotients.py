"""Compute quotients and remainders of a parallel loop's variable by sizes once per iteration.

    for k in parallel(n * m): for j: … A[k // m, k % m, j] …
    -->
    for k in parallel(n * m):
        at = k // m
        at_1 = k % m
        for j: … A[at, at_1, j] …

A division by an unknown size takes as long as dozens of other operations, and LLVM does not hoist
it: under a condition it might be undefined elsewhere. Here the loop implies that sizes are
positive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from tilewright.arith import Ranges, prove
from tilewright.ir import (
    Binary,
    Const,
    Expr,
    For,
    Function,
    Let,
    Stmt,
    Var,
    child_exprs,
    free_vars,
    loads_in,
    map_children,
    map_expr,
    map_exprs,
    walk,
)


def bind_quotients(function: Function) -> Function:
    """Let each parallel loop over several sizes begin by computing the index along each of them."""
    numbers = [p for p in function.params if isinstance(p, Var)] + function.dims
    if not numbers:
        return function
    ranges = Ranges.for_function(function)
    return function.with_body(_bound(function.body, ranges, frozenset(numbers)))


def _bound(stmt: Stmt, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
    if isinstance(stmt, For):
        ranges, scope = ranges.with_extent(stmt.var, stmt.extent), scope | {stmt.var}
        if stmt.kind == "parallel":
            return replace(stmt, body=_with_quotients(stmt, ranges, scope))
    return map_children(stmt, lambda s: _bound(s, ranges, scope))


def _with_quotients(loop: For, ranges: Ranges, scope: frozenset[Var]) -> Stmt:
    memo: dict[Expr, Expr] = {}
    lets: list[tuple[Var, Expr]] = []
    for node in _quotients(loop.body):
        used = free_vars(node)
        if loop.var in used and used <= scope and prove(node.b >= 1, ranges):
            var = Var("at", node.dtype)
            lets.append((var, map_expr(node, _kept, memo)))
            memo[node] = var
    if not lets:
        return loop.body
    body = map_exprs(loop.body, lambda e: map_expr(e, _kept, memo))
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return body


def _kept(_: Expr) -> None:
    """Replaces no expression except those in the memo."""


def _quotients(body: Stmt) -> Iterator[Binary]:
    """The divisions by non-constants, each once, inner ones first."""
    seen: set[Expr] = set()
    for stmt in walk(body):
        for expr in child_exprs(stmt):
            yield from _inside(expr, seen)


def _inside(expr: Expr, seen: set[Expr]) -> Iterator[Binary]:
    pending = [(expr, False)]
    while pending:
        node, is_done = pending.pop()
        if is_done and _divides(node):
            yield node
        if is_done or node in seen:
            continue
        seen.add(node)
        pending.append((node, True))
        pending.extend((operand, False) for operand in node.operands)


def _divides(node: Expr) -> TypeGuard[Binary]:
    if not isinstance(node, Binary) or node.op not in ("floordiv", "floormod"):
        return False
    return not isinstance(node.b, Const) and not loads_in(node)
