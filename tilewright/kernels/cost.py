"""Lower bounds of a kernel's work: operations on elements, and bytes of memory traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from tilewright.codegen import numbers_of
from tilewright.ir import (
    Binary,
    Call,
    DType,
    Expr,
    For,
    Function,
    Load,
    Param,
    Stmt,
    Store,
    Unary,
    Var,
    child_stmts,
    evaluate,
    free_vars,
    loads_in,
)
from tilewright.lower import expand


class Cost(NamedTuple):
    """Operations, and bytes of parameters that are read or written at least once."""

    flops: int
    bytes: int
    #: The part of `bytes` that belongs to constants.
    constants: int


def cost_of(function: Function, numbers: Sequence[int]) -> Cost:
    """The cost of a call with these scalars and dimensions.

    Loops whose extents depend on data or on outer loops count as one iteration; all branches count.
    """
    env = dict(zip(numbers_of(function), numbers, strict=False))
    flops, touched = 0, Counter[Param]()
    pending: list[tuple[Stmt, int]] = [(function.body, 1)]
    while pending:
        stmt, iterations = pending.pop()
        if isinstance(stmt, For):
            iterations *= _value(stmt.extent, env, 1)
        if isinstance(stmt, Store):
            flops += iterations * _operations(stmt.value)
            touched[stmt.buffer] += iterations
            for load in loads_in(stmt.value):
                touched[load.buffer] += iterations
        pending.extend((child, iterations) for child in child_stmts(stmt))
    sizes = [_bytes(p, touched[p], env) for p in function.params]
    return Cost(flops, sum(sizes), sum(sizes[k] for k in constant_params(function)))


def constant_params(function: Function) -> tuple[int, ...]:
    """The indices of a kernel's parameters that are constants of its model."""
    return tuple(int(k) for k in function.attrs.get("constants", ()))


def _bytes(buffer: Param, accesses: int, env: Mapping[Var, int]) -> int:
    """Bytes touched: at most the size of the buffer, and at most one element per access."""
    if isinstance(buffer, Var):
        return 0
    size = 1
    for extent in buffer.shape:
        size *= _value(extent, env, accesses)
    return min(size, accesses) * buffer.dtype.itemsize


def _value(expr: Expr, env: Mapping[Var, int], otherwise: int) -> int:
    known = free_vars(expr) <= env.keys() and not any(True for _ in loads_in(expr))
    return max(0, int(evaluate(expr, env))) if known else otherwise


def _operations(value: Expr) -> int:
    """Operations on elements; index arithmetic is not counted."""
    seen: set[Expr] = set()
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, Load):
            continue
        seen.add(node)
        if isinstance(node, Call):
            count += _operations_of_call(node.name, tuple(a.dtype for a in node.args), node.dtype)
        count += isinstance(node, Binary | Unary)
        pending.extend(node.operands)
    return count


@cache
def _operations_of_call(name: str, dtypes: tuple[DType, ...], dtype: DType) -> int:
    """Operations in a function's arithmetic expansion, else 1; a fused multiply-add counts 2."""
    args = tuple(Var(f"x{k}", d) for k, d in enumerate(dtypes))
    arithmetic = expand(Call(name, args, dtype), angles="near")
    return 1 + (name == "fma") if arithmetic is None else _operations(arithmetic)
