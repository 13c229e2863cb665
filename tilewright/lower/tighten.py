"""Shorten loops whose last iterations do nothing.

    for i in range(64): for j in …: if k * 64 + i < n: …
    -->
    for i in range(min(64, n - k * 64)): for j in …: …

A condition moves out of the loops that it does not depend on, up to the loop that it bounds.
Vectorized and unrolled loops keep their length: `hoist_guards` handles these.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Ranges, conjuncts, linear, simplify
from tilewright.ir import (
    Alloc,
    Binary,
    Expr,
    For,
    Function,
    If,
    Seq,
    Stmt,
    Var,
    all_of,
    free_vars,
    loads_in,
    map_children,
    minimum,
)


def tighten_loops(function: Function) -> Function:
    """End loops where their guards begin to fail."""
    return function.with_body(_visit(function.body, Ranges.for_function(function)))


def _visit(stmt: Stmt, ranges: Ranges) -> Stmt:
    if not isinstance(stmt, For):
        return _raised(map_children(stmt, lambda s: _visit(s, ranges)))
    body = _visit(stmt.body, ranges.with_extent(stmt.var, stmt.extent))
    if not isinstance(body, If) or body.otherwise is not None:
        return stmt if body is stmt.body else replace(stmt, body=body)
    return _apply(stmt, body, ranges)


def _raised(stmt: Stmt) -> Stmt:
    """Hoist conditions shared by all statements of a sequence or an allocation around it.

    if c: a; if c: b  -->  if c: (a; b)
    """
    if not isinstance(stmt, Seq | Alloc):
        return stmt
    inner = stmt.statements if isinstance(stmt, Seq) else (stmt.body,)
    found = [_guards(s) for s in inner]
    shared = {c: None for c in found[0] if all(c in g for g in found)} if found else {}
    if not shared:
        return stmt
    return If(all_of(*shared), map_children(stmt, lambda s: _without(s, shared)))


def _guards(stmt: Stmt) -> dict[Expr, None]:
    """Conditions for `stmt` to do anything, except those on memory."""
    if not isinstance(stmt, If) or stmt.otherwise is not None:
        return {}
    return {c: None for c in conjuncts(stmt.condition) if not loads_in(c)}


def _without(guarded: Stmt, known: dict[Expr, None]) -> Stmt:
    assert isinstance(guarded, If)
    left = [c for c in conjuncts(guarded.condition) if c not in known]
    return replace(guarded, condition=all_of(*left)) if left else guarded.then


def _apply(loop: For, guarded: If, ranges: Ranges) -> Stmt:
    """`loop` around a guard: conditions without its variable move outside, bounds shorten it."""
    outside, inside, extent = list[Expr](), list[Expr](), loop.extent
    for condition in conjuncts(guarded.condition):
        limit = limit_of(condition, loop.var) if is_shortened(loop) else None
        if loop.var not in free_vars(condition) and not loads_in(condition):
            outside.append(condition)
        elif limit is not None:
            extent = simplify(minimum(extent, limit), ranges)
        else:
            inside.append(condition)
    body = replace(guarded, condition=all_of(*inside)) if inside else guarded.then
    shortened: Stmt = replace(loop, extent=extent, body=body)
    return If(all_of(*outside), shortened) if outside else shortened


def is_shortened(loop: For) -> bool:
    """Whether conditions may shorten a loop: it is neither unrolled nor vectorized."""
    return loop.kind in ("serial", "parallel")


def limit_of(condition: Expr, var: Var) -> Expr | None:
    """The extent such that `condition` is true for exactly the first values of `var`."""
    if not isinstance(condition, Binary) or condition.op != "lt" or loads_in(condition):
        return None
    if not condition.a.dtype.is_integer:
        return None
    room = linear(condition.b - condition.a)
    if room.terms.get(var) != -1:
        return None
    rest = simplify(room.expr() + var)
    return None if var in free_vars(rest) else rest
