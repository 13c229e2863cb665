"""Simplification of statements, by the knowledge that loops, ifs, blocks and lets add.

for i in range(1): S          -->  S with i = 0
for i in range(0): S          -->  (nothing)
if True: S else: T            -->  S
block where(True)             -->  block without a predicate
let x = 3: S                  -->  S with x = 3
assert True                   -->  (nothing)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.arith.bounds import bounds
from tilewright.arith.ranges import Ranges, conjuncts
from tilewright.arith.simplify import simplify
from tilewright.ir import (
    STAGES,
    Assert,
    Binary,
    Block,
    Const,
    Expr,
    For,
    Function,
    If,
    Iter,
    Let,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    const,
    is_const,
    loads_in,
    map_children,
    map_region,
    seq,
    substitute_stmt,
)

_NOTHING = Seq(())


def simplify_function(function: Function) -> Function:
    """`function` with a simplified body; its dimensions are assumed not to be negative."""
    return function.with_body(simplify_stmt(function.body, Ranges.for_function(function)))


def simplify_stmt(stmt: Stmt, ranges: Ranges) -> Stmt:
    """`stmt` simplified where `ranges` hold; the same object where nothing changes."""
    rule = _RULES.get(type(stmt), _plain)
    return rule(stmt, ranges)


def _plain(stmt: Stmt, ranges: Ranges) -> Stmt:
    return map_children(stmt, lambda s: simplify_stmt(s, ranges), lambda e: simplify(e, ranges))


def is_empty(stmt: Stmt) -> bool:
    """Does it do nothing at all?"""
    return isinstance(stmt, Seq) and not stmt.statements


def _changed(stmt: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        if getattr(stmt, name) is not value:
            return replace(stmt, **fields)
    return stmt


def assume(ranges: Ranges, condition: Expr) -> Ranges:
    """Knowledge where `condition` was tested; none about memory, which may have changed."""
    return ranges if loads_in(condition) else ranges.assuming(condition)


def _for(s: For, ranges: Ranges) -> Stmt:
    extent = simplify(s.extent, ranges)
    high = bounds(extent, ranges).high
    if high is not None and high <= 0:
        return _NOTHING
    # A loop over a thread axis determines the launch, even with one iteration, and one with
    # stages how its operands are copied.
    if is_const(extent, 1) and s.kind != "thread" and STAGES not in s.annotations:
        return simplify_stmt(substitute_stmt(s.body, {s.var: const(0, s.var.dtype)}), ranges)
    body = simplify_stmt(s.body, ranges.with_extent(s.var, extent))
    return _NOTHING if is_empty(body) else _changed(s, extent=extent, body=body)


def _block(s: Block, ranges: Ranges) -> Stmt:
    extents = [simplify(i.extent, ranges) for i in s.iters]
    bindings = tuple(simplify(b, ranges) for b in s.bindings)
    bound = ranges
    for it, value in zip(s.iters, bindings, strict=True):
        bound = bound.with_value(it.var, value) if not loads_in(value) else bound
    # The domains hold for existing instances only, so they must not simplify the predicate.
    predicate = simplify(s.predicate, bound)
    if is_const(predicate, False):
        return _NOTHING
    inside = assume(ranges, predicate)
    for it, extent in zip(s.iters, extents, strict=True):
        inside = inside.with_extent(it.var, extent)

    def on_region(region: Any) -> Any:
        return map_region(region, lambda e: simplify(e, inside))

    return _changed(
        s,
        iters=_kept(s.iters, map(_with_extent, s.iters, extents)),
        bindings=_kept(s.bindings, bindings),
        predicate=predicate,
        reads=_kept(s.reads, [on_region(r) for r in s.reads]),
        writes=_kept(s.writes, [on_region(r) for r in s.writes]),
        init=None if s.init is None else simplify_stmt(s.init, inside),
        body=simplify_stmt(s.body, inside),
    )


def _with_extent(it: Iter, extent: Expr) -> Iter:
    return it if extent is it.extent else it._replace(extent=extent)


def _kept(before: tuple[Any, ...], after: Any) -> tuple[Any, ...]:
    """`before` where nothing in it changed."""
    after = tuple(after)
    for a, b in zip(before, after, strict=True):
        if a is not b:
            return after
    return before


def _if(s: If, ranges: Ranges) -> Stmt:
    condition = simplify(s.condition, ranges)
    if isinstance(condition, Const):
        chosen = s.then if condition.value else s.otherwise
        return _NOTHING if chosen is None else simplify_stmt(chosen, ranges)
    opposite = Unary("not", condition)
    then = simplify_stmt(s.then, assume(ranges, condition))
    otherwise = s.otherwise
    if otherwise is not None:
        otherwise = simplify_stmt(otherwise, assume(ranges, opposite))
    if otherwise is not None and is_empty(otherwise):
        otherwise = None
    if not is_empty(then):
        return _changed(s, condition=condition, then=then, otherwise=otherwise)
    if otherwise is None:
        return _NOTHING
    return replace(s, condition=simplify(opposite, ranges), then=otherwise, otherwise=None)


def _while(s: While, ranges: Ranges) -> Stmt:
    condition = simplify(s.condition, ranges)
    if is_const(condition, False):
        return _NOTHING
    body = simplify_stmt(s.body, assume(ranges, condition))
    return _changed(s, condition=condition, body=body)


def _let(s: Let, ranges: Ranges) -> Stmt:
    value = simplify(s.value, ranges)
    if isinstance(value, Const | Var):
        return simplify_stmt(substitute_stmt(s.body, {s.var: value}), ranges)
    body = simplify_stmt(s.body, _knowing(ranges, s.var, value))
    return _NOTHING if is_empty(body) else _changed(s, value=value, body=body)


def _knowing(ranges: Ranges, var: Var, value: Expr) -> Ranges:
    """The knowledge from a let: its variable's value, or bounds where that depends on memory."""
    if not var.dtype.is_integer or var.dtype.is_vector:
        return ranges
    if not loads_in(value):
        return ranges.with_value(var, value)
    return ranges.with_bounds(var, *bounds(value, ranges))


def _store(s: Store, ranges: Ranges) -> Stmt:
    if s.mask is None:
        return _plain(s, ranges)
    mask = simplify(s.mask, ranges)
    scalar = getattr(mask, "a", mask)
    if isinstance(scalar, Const):
        if not scalar.value:
            return _NOTHING
        s = replace(s, mask=None)
    return _plain(s, ranges)


def _assert(s: Assert, ranges: Ranges) -> Stmt:
    condition = simplify(s.condition, ranges)
    return _NOTHING if is_const(condition, True) else _plain(s, ranges)


def _seq(s: Seq, ranges: Ranges) -> Stmt:
    kept: list[Stmt] = []
    asserted = set[Expr]()
    for statement in s.statements:
        after = simplify_stmt(statement, ranges)
        if isinstance(after, Assert) and not loads_in(after.condition):
            if after.condition in asserted:
                after = _NOTHING
            elif _tells_bounds(after.condition):
                ranges = ranges.assuming(after.condition)
            else:
                asserted.add(after.condition)
        kept.append(after)
    return s if _kept(s.statements, kept) is s.statements else seq(*kept)


def _tells_bounds(condition: Expr) -> bool:
    """Whether it bounds numbers: for other conditions, a new context is not worth its cost.

    A new context starts without answers.
    """
    return any(
        isinstance(part, Binary) and part.op in ("lt", "le", "gt", "ge", "eq")
        for part in conjuncts(condition)
    )


_RULES: dict[type[Stmt], Callable[[Any, Ranges], Stmt]] = {
    For: _for,
    Block: _block,
    If: _if,
    While: _while,
    Let: _let,
    Store: _store,
    Assert: _assert,
    Seq: _seq,
}
