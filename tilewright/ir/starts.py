"""The results of an empty reduction: its initial values.

    for i in range(4): for k in range(n): block C(i, k): init: C[i] = 0; C[i] = C[i] + A[i, k]

With n = 0 no instance of the block runs, yet C is 0: the loop over k initializes its reduction.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.expr import Binary, Expr, Var, all_of, const
from tilewright.ir.stmt import TRUE, Block, For, If, Seq, Stmt, seq
from tilewright.ir.visit import free_vars, substitute, substitute_stmt, walk


def starts_of(loop: For) -> Stmt | None:
    """The replacement of `loop` where it has no iterations; None where it reduces nothing."""
    return _starts(loop, frozenset()) if _reduces(loop) else None


def _reduces(loop: For) -> bool:
    """Whether the loop drives a reduction."""
    blocks = [s for s in walk(loop.body) if isinstance(s, Block) and s.init is not None]
    return any(loop.var in free_vars(e) for b in blocks for e in _reduced(b))


def _reduced(block: Block) -> list[Expr]:
    pairs = zip(block.iters, block.bindings, strict=True)
    return [binding for it, binding in pairs if it.kind == "reduce"]


def _starts(stmt: Stmt, over: frozenset[Var]) -> Stmt | None:
    """The inits of reductions over the variables of `over`, for one iteration of their loops."""
    if isinstance(stmt, Seq):
        found = [_starts(s, over) for s in stmt.statements]
        return seq(*(s for s in found if s is not None)) if any(found) else None
    if isinstance(stmt, For):
        reduces = _reduces(stmt)
        body = _starts(stmt.body, over | {stmt.var} if reduces else over)
        if body is None:
            return None
        zero = const(0, stmt.var.dtype)
        return substitute_stmt(body, {stmt.var: zero}) if reduces else replace(stmt, body=body)
    return _start(stmt, over) if isinstance(stmt, Block) else None


def _start(block: Block, over: frozenset[Var]) -> Stmt | None:
    if block.init is None or all(over.isdisjoint(free_vars(e)) for e in _reduced(block)):
        return None
    values = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    init = substitute_stmt(block.init, values)
    kept = [c for c in _parts(substitute(block.predicate, values)) if over.isdisjoint(free_vars(c))]
    return If(all_of(*kept), init) if kept else init


def _parts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Binary) and condition.op == "and":
        return [*_parts(condition.a), *_parts(condition.b)]
    return [] if condition is TRUE else [condition]
