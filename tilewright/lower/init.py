"""Place the initialisation of reductions: `init` becomes a loop nest before the reduction.

for i: for k: block C(i, k): init: C[i] = 0; C[i] = C[i] + A[i, k]
-->
for i:
    C[i] = 0                      before the outermost loop that the reduction runs over, so that
    for k: C[i] = C[i] + A[i, k]  a reduction over nothing is initialised too
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.arith import conjuncts
from tilewright.ir import (
    Binary,
    Block,
    Expr,
    For,
    Function,
    If,
    Stmt,
    Var,
    all_of,
    const,
    free_vars,
    map_children,
    seq,
    substitute,
    substitute_stmt,
)


def place_init(function: Function) -> Function:
    """Move the inits of all blocks in front of their reductions."""
    body, left = _place(function.body, ())
    assert not left
    return function.with_body(body)


def _place(stmt: Stmt, loops: tuple[For, ...]) -> tuple[Stmt, list[tuple[For | None, Stmt]]]:
    """`stmt` without inits, and the nests to insert before some loop around it."""
    waiting: list[tuple[For | None, Stmt]] = []
    inside = (*loops, stmt) if isinstance(stmt, For) else loops

    def below(child: Stmt) -> Stmt:
        placed, left = _place(child, inside)
        waiting.extend(left)
        return placed

    if isinstance(stmt, Block) and stmt.init is not None:
        return _detach(stmt, loops, waiting)
    rebuilt = map_children(stmt, below)
    here = [nest for loop, nest in waiting if loop is stmt]
    left = [(loop, nest) for loop, nest in waiting if loop is not stmt]
    return (seq(*here, rebuilt) if here else rebuilt), left


def _detach(
    block: Block,
    loops: tuple[For, ...],
    waiting: list[tuple[For | None, Stmt]],
) -> tuple[Stmt, list[tuple[For | None, Stmt]]]:
    assert block.init is not None
    bare = _without_init(block)
    reduces = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "reduce"]
    carriers = [loop for loop in loops if any(loop.var in free_vars(b) for b in reduces)]
    if not carriers:
        return seq(_instance(block, block.bindings, {}), bare), waiting
    outermost = carriers[0]
    if _mixes_space_and_reduction(block, carriers):
        first = all_of(*(Binary("eq", b, const(0)) for b in reduces))
        return seq(If(first, _instance(block, block.bindings, {})), bare), waiting
    inner = loops[loops.index(outermost) :]
    waiting.append((outermost, _nest(_guarded_by(loops, block), inner, carriers)))
    return bare, waiting


def _guarded_by(loops: Sequence[For], block: Block) -> Block:
    """The block with the parts of its predicate that depend on loops, also for empty reductions."""
    variables = {loop.var for loop in loops}
    kept = [c for c in conjuncts(block.predicate) if not variables.isdisjoint(free_vars(c))]
    return replace(block, predicate=all_of(*kept))


def _without_init(block: Block) -> Block:
    """The body now also reads what the init wrote."""
    known = {region.buffer for region in block.reads}
    given = tuple(region for region in block.writes if region.buffer not in known)
    return replace(block, init=None, reads=(*given, *block.reads))


def _mixes_space_and_reduction(block: Block, carriers: Sequence[For]) -> bool:
    """Whether one loop determines both spatial and reduction variables (they were fused)."""
    spatial = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind != "reduce"]
    return any(loop.var in free_vars(b) for loop in carriers for b in spatial)


def _nest(block: Block, loops: Sequence[For], carriers: Sequence[For]) -> Stmt:
    """The init in copies of the loops that its elements depend on."""
    kept = [loop for loop in loops if loop not in carriers and _is_used(loop.var, block)]
    # A loop that changes neither the element nor the reduction: init in its first iteration.
    renamed: dict[Var, Expr] = {loop.var: const(0) for loop in loops}
    variables = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in kept}
    renamed |= variables
    hidden = frozenset(loop.var for loop in carriers)
    nest = _instance(block, block.bindings, renamed, hidden)
    for loop in reversed(kept):
        nest = For(
            variables[loop.var],
            substitute(loop.extent, renamed),
            loop.kind,
            nest,
            loop.axis,
            loop.annotations,
            loop.span,
        )
    return nest


def _is_used(var: Var, block: Block) -> bool:
    spatial = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind != "reduce"]
    return any(var in free_vars(b) for b in spatial)


def _instance(
    block: Block,
    bindings: Sequence[Expr],
    renamed: dict[Var, Expr],
    hidden: frozenset[Var] = frozenset(),
) -> Stmt:
    """One instance of the init, guarded by the parts of the predicate that concern it."""
    assert block.init is not None
    values = {it.var: substitute(b, renamed) for it, b in zip(block.iters, bindings, strict=True)}
    body = substitute_stmt(block.init, values)
    wanted = [c for c in conjuncts(block.predicate) if hidden.isdisjoint(free_vars(c))]
    condition = substitute(all_of(*wanted), renamed)
    return If(condition, body) if wanted else body
