"""What loops do at least: operations on elements, and bytes that must come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilewright.ir import (
    Binary,
    Buffer,
    Call,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    Unary,
    Var,
    child_stmts,
    evaluate,
    free_vars,
    loads_in,
)
from tilewright.kernels.compiled import numbers_of


class Cost(NamedTuple):
    """Operations, and bytes of parameters that are read or written."""

    flops: int
    bytes: int


def cost_of(function: Function, numbers: Sequence[int]) -> Cost:
    """The cost of a call with these scalars and dimensions.

    Loops whose extents depend on data or on other loops count as one turn, and so do branches.
    """
    env = dict(zip(numbers_of(function), numbers, strict=False))
    flops, touched = 0, Counter[Buffer]()
    pending: list[tuple[Stmt, int]] = [(function.body, 1)]
    while pending:
        stmt, turns = pending.pop()
        if isinstance(stmt, For):
            turns *= _value(stmt.extent, env, 1)
        if isinstance(stmt, Store):
            flops += turns * _operations(stmt.value)
            touched[stmt.buffer] += turns
            for load in loads_in(stmt.value):
                touched[load.buffer] += turns
        pending.extend((child, turns) for child in child_stmts(stmt))
    params = [p for p in function.params if isinstance(p, Buffer)]
    return Cost(flops, sum(_bytes(p, touched[p], env) for p in params))


def _bytes(buffer: Buffer, accesses: int, env: Mapping[Var, int]) -> int:
    """Memory that some access touches: no more than there is, nor than there are accesses."""
    size = 1
    for extent in buffer.shape:
        size *= _value(extent, env, accesses)
    return min(size, accesses) * buffer.dtype.itemsize


def _value(expr: Expr, env: Mapping[Var, int], otherwise: int) -> int:
    known = free_vars(expr) <= env.keys() and not any(True for _ in loads_in(expr))
    return max(0, int(evaluate(expr, env))) if known else otherwise


def _operations(value: Expr) -> int:
    """Operations on elements; what computes their places is not counted."""
    seen: set[Expr] = set()
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, Load):
            continue
        seen.add(node)
        count += isinstance(node, Binary | Unary | Call)
        pending.extend(node.operands)
    return count
