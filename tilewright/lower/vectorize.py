"""Turn vectorized loops into vector statements.

    for i in vectorized(8): A[j * 8 + i] = B[i] + c
    -->
    A[ramp(j * 8, 1, 8)] = B[ramp(0, 1, 8)] + broadcast(c, 8)

A condition that differs between lanes becomes the mask of the stores below it (loads that it makes
safe already have their masks: see `lower.bounds`). What has no vector form runs lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.arith import conjuncts, simplify
from tilewright.ir import (
    Alloc,
    Assert,
    Broadcast,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    all_of,
    broadcast,
    call,
    const,
    free_vars,
    loads_in,
    map_expr,
    map_function,
    renew,
    seq,
)

#: Intrinsics whose operands or results are not one value per lane.
_LANELESS = {"address_of", "all_lanes", "first_lane", "lane", "prefetch"}


def _is_laneless(node: Call) -> bool:
    # A target's own instructions and C functions have their own types.
    return node.name in _LANELESS or "." in node.name


class _NoVectorFormError(Exception):
    """The loop has to run lane by lane."""


def vectorize(function: Function) -> Function:
    """Replace all vectorized loops."""
    return map_function(function, _vectorize_loop)


def _vectorize_loop(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind != "vectorized":
        return None
    if not isinstance(stmt.extent, Const) or stmt.extent.value < 2:
        return replace(stmt, kind="serial")
    try:
        return _vectors(stmt.var, int(stmt.extent.value), stmt.body)
    except _NoVectorFormError:
        return replace(stmt, kind="serial")


def _vectors(var: Var, lanes: int, body: Stmt) -> Stmt:
    """All lanes at once, or in powers of two: LLVM handles vectors of other lengths badly."""
    parts: list[Stmt] = []
    start = 0
    while start < lanes:
        length = 1 << ((lanes - start).bit_length() - 1)
        parts.append(body if length == lanes else _part(var, start, length, body))
        if length > 1:
            parts[-1] = _Lanes(var, length).stmt(parts[-1], None)
        start += length
    return seq(*parts)


def _part(var: Var, start: int, length: int, body: Stmt) -> Stmt:
    """A copy of the body for `length` values of `var` from `start` on; `var` then starts at 0."""
    return renew(body, {var: const(start) if length == 1 else var + start})


class _Lanes:
    """One vectorized loop: each value that depends on its variable has an element per lane."""

    def __init__(self, var: Var, lanes: int) -> None:
        self.lanes = lanes
        self.memo: dict[Expr, Expr] = {var: Ramp(const(0), const(1), lanes)}
        self.varying = {var}

    def expr(self, root: Expr) -> Expr:
        if free_vars(root).isdisjoint(self.varying):
            return root
        return simplify(map_expr(root, lambda _: None, self.memo, self._widen))

    def _widen(self, node: Expr, operands: tuple[Expr, ...]) -> Expr:
        """`node` with operands some of which are vectors now."""
        if isinstance(node, Ramp | Broadcast) or (isinstance(node, Call) and _is_laneless(node)):
            raise _NoVectorFormError
        if isinstance(node, Load):
            return self._widen_load(node, operands)
        return node.with_operands(tuple(broadcast(o, self.lanes) for o in operands))

    def _widen_load(self, node: Load, operands: tuple[Expr, ...]) -> Expr:
        indices, mask = operands[: len(node.indices)], operands[len(node.indices) :]
        if not any(i.dtype.is_vector for i in indices):
            # One element for all lanes, but masked for some: let every lane load it.
            indices = tuple(broadcast(i, self.lanes) for i in indices)
        return Load(node.buffer, indices, *(broadcast(m, self.lanes) for m in mask))

    # ---- statements, each under a mask (None: all lanes) ----------------------------------------

    def stmt(self, stmt: Stmt, mask: Expr | None) -> Stmt:
        return _STATEMENTS[type(stmt)](self, stmt, mask)

    def store(self, stmt: Store, mask: Expr | None) -> Stmt:
        indices = tuple(self.expr(i) for i in stmt.indices)
        value = self.expr(stmt.value)
        own = None if stmt.mask is None else self.expr(stmt.mask)
        if not any(i.dtype.is_vector for i in indices):
            if value.dtype.is_vector or mask is not None:
                raise _NoVectorFormError
            return replace(stmt, indices=indices, value=value, mask=own)
        both = [m for m in (mask, own) if m is not None]
        merged = simplify(all_of(*(broadcast(m, self.lanes) for m in both))) if both else None
        return replace(stmt, indices=indices, value=broadcast(value, self.lanes), mask=merged)

    def branch(self, stmt: If, mask: Expr | None) -> Stmt:
        parts = conjuncts(stmt.condition)
        shared = [c for c in parts if free_vars(c).isdisjoint(self.varying)]
        rest = [c for c in parts if not free_vars(c).isdisjoint(self.varying)]
        if shared and rest:
            # What all lanes share stays a branch: loads below may rely on it without a mask.
            otherwise = None if stmt.otherwise is None else renew(stmt.otherwise)
            inner = replace(stmt, condition=all_of(*rest))
            return self.branch(If(all_of(*shared), inner, otherwise, stmt.span), mask)
        condition = self.expr(stmt.condition)
        if not condition.dtype.is_vector:
            then = self.stmt(stmt.then, mask)
            otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, mask)
            return If(condition, then, otherwise, stmt.span)
        if isinstance(condition, Broadcast):
            return self.branch(replace(stmt, condition=condition.a), mask)
        if loads_in(condition):
            # The stores below may change what the condition reads, so it is evaluated once.
            chosen = Var("chosen", condition.dtype)
            return Let(chosen, condition, self._choice(stmt, chosen, mask))
        return self._choice(stmt, condition, mask)

    def _choice(self, stmt: If, condition: Expr, mask: Expr | None) -> Stmt:
        then = self.stmt(stmt.then, _both(mask, condition))
        if stmt.otherwise is None:
            return then
        return seq(then, self.stmt(stmt.otherwise, _both(mask, ~condition)))

    def loop(self, stmt: For, mask: Expr | None) -> Stmt:
        if not free_vars(stmt.extent).isdisjoint(self.varying):
            raise _NoVectorFormError
        return replace(stmt, body=self.stmt(stmt.body, mask))

    def let(self, stmt: Let, mask: Expr | None) -> Stmt:
        value = self.expr(stmt.value)
        if not value.dtype.is_vector:
            return replace(stmt, value=value, body=self.stmt(stmt.body, mask))
        var = Var(stmt.var.name, value.dtype)
        self.memo[stmt.var] = var
        self.varying.add(stmt.var)
        return Let(var, value, self.stmt(stmt.body, mask), stmt.span)

    def check(self, stmt: Assert, mask: Expr | None) -> Stmt:
        condition = self.expr(stmt.condition)
        if not condition.dtype.is_vector and mask is None:
            return stmt
        wanted = broadcast(condition, self.lanes)
        if mask is not None:
            wanted = ~mask | wanted
        # The failing lane matters only for the message.
        failed = call("first_lane", ~wanted)
        values = [self.expr(v) for v in stmt.values]
        shown = tuple(call("lane", v, failed) if v.dtype.is_vector else v for v in values)
        return replace(stmt, condition=call("all_lanes", wanted), values=shown)

    def row(self, stmt: Seq, mask: Expr | None) -> Stmt:
        return seq(*(self.stmt(s, mask) for s in stmt.statements))


def _both(mask: Expr | None, condition: Expr) -> Expr:
    return condition if mask is None else mask & condition


def _refuse(_lanes: _Lanes, _stmt: Stmt, _mask: Expr | None) -> Stmt:
    raise _NoVectorFormError


_STATEMENTS: dict[type[Stmt], Callable[[_Lanes, Any, Expr | None], Stmt]] = {
    Store: _Lanes.store,
    If: _Lanes.branch,
    For: _Lanes.loop,
    Let: _Lanes.let,
    Assert: _Lanes.check,
    Seq: _Lanes.row,
    While: _refuse,
    Alloc: _refuse,
    Evaluate: _refuse,
}
