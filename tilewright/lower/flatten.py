"""Give every access a single index, in elements from the start of the buffer.

A[i, j]  -->  A[i * 64 + j]
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Ranges, simplify
from tilewright.ir import (
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    Var,
    all_exprs,
    cast,
    const,
    is_const,
    map_children,
    map_expr,
    map_function,
    match_types,
)


def flatten(function: Function) -> Function:
    """Replace the indices of every load and store by one."""
    memo: dict[Expr, Expr] = {}
    flat = map_function(function, _flatten_store, lambda e: map_expr(e, _flatten_load, memo))
    if not _divides_by_sizes(flat):
        return flat
    return flat.with_body(_simplified(flat.body, Ranges.for_function(flat)))


def _divides_by_sizes(function: Function) -> bool:
    """Whether there are remainders by sizes that are known to be positive only inside loops.

    for k in range(h * w): A[k // w * w + k % w]  -->  for k in range(h * w): A[k]
    """
    remainders = (
        e for e in all_exprs(function.body) if isinstance(e, Binary) and e.op == "floormod"
    )
    has_sizes = bool(function.dims) or any(isinstance(p, Var) for p in function.params)
    return has_sizes and any(not isinstance(e.b, Const) for e in remainders)


def _simplified(stmt: Stmt, ranges: Ranges) -> Stmt:
    """A statement with simpler indices. Masks of loads stay, even if a surrounding condition
    implies them: vectorized stores use that condition as their mask."""
    inside = ranges.with_extent(stmt.var, stmt.extent) if isinstance(stmt, For) else ranges
    memo: dict[Expr, Expr] = {}

    def on_node(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        return Load(node.buffer, (simplify(node.indices[0], inside),), node.mask)

    def on_expr(expr: Expr) -> Expr:
        return map_expr(expr, on_node, memo)

    made = map_children(stmt, lambda s: _simplified(s, inside), on_expr)
    if isinstance(made, Store):
        return replace(made, indices=(simplify(made.indices[0], inside),))
    return made


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The position of an element: the offset plus its indices weighted by the strides."""
    position: Expr = buffer.offset
    for index, stride in zip(indices, buffer.stride_exprs(), strict=True):
        index = cast(index, position.dtype)
        # Strides of unknown sizes are slow to simplify, only to be multiplied by zero.
        if is_const(index, 0):
            continue
        term = index if stride is const(1) else _times(index, stride)
        a, b = match_types("add", position, term)
        position = term if position is const(0) else a + b
    return simplify(position)


def _times(index: Expr, stride: Expr) -> Expr:
    a, b = match_types("mul", index, stride)
    return a * b


def _flatten_load(expr: Expr) -> Expr | None:
    if not isinstance(expr, Load):
        return None
    return Load(expr.buffer, (flat_index(expr.buffer, expr.indices),), expr.mask)


def _flatten_store(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Store):
        return None
    return replace(stmt, indices=(flat_index(stmt.buffer, stmt.indices),))
