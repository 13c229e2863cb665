"""Expressions as JSON data, stored with the code: a number, or [operation, operand, …]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import (
    Binary,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    call,
    cast,
    const,
    is_pure,
    select,
    unary,
)
from tilewright.support.errors import InternalError

#: `["number", k]` is the k-th of the formula's variables; types are written by name.
Formula = Any


def formula_of(expr: Expr, numbers: Sequence[Var]) -> Formula:
    """`expr` as data, with variables replaced by their index in `numbers`."""

    def of(*operands: Expr) -> list[Formula]:
        return [formula_of(o, numbers) for o in operands]

    match expr:
        case Const():
            is_size = expr.dtype is DType.of("int64")
            return expr.value if is_size else ["const", expr.dtype.name, expr.value]
        case Var():
            return ["number", numbers.index(expr)]
        case Binary() | Unary():
            return [expr.op, *of(*expr.operands)]
        case Select():
            return ["select", *of(*expr.operands)]
        case Cast():
            return ["cast", expr.dtype.name, *of(expr.a)]
        case Call() if is_pure(expr):
            return ["call", expr.name, *of(*expr.args)]
        case _:
            raise InternalError(f"a workspace takes `{expr}` bytes, which is no formula")


def expr_of(formula: Formula, numbers: Sequence[Expr]) -> Expr:
    """The expression of a formula, with these expressions for its variables."""
    if isinstance(formula, int):
        return const(formula)
    head: str = formula[0]
    if head == "number":
        return numbers[int(formula[1])]
    if head == "const":
        return const(formula[2], formula[1])
    skipped = 2 if head in ("cast", "call") else 1
    args = [expr_of(o, numbers) for o in formula[skipped:]]
    if head == "cast":
        return cast(args[0], formula[1])
    if head == "call":
        return call(formula[1], *args)
    if head == "select":
        return select(*args)
    return unary(head, *args) if len(args) == 1 else binary(head, *args)
