"""Constant folding, with the exact semantics of `ir.expr`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tilewright.arith.interval import wrap
from tilewright.ir import Binary, Call, Cast, Const, Expr, Unary, cast, const, evaluate

_Number = bool | int | float


def fold(node: Expr) -> Expr | None:
    """The constant value of a node over constants."""
    rule = _FOLD.get(type(node))
    if rule is None:
        return None
    for operand in node.operands:
        if type(operand) is not Const:
            return None
    return rule(node)


def _binary(node: Binary) -> Expr | None:
    a, b = _value(node.a), _value(node.b)
    if node.a.dtype.is_float:
        return _float_binary(node, float(a), float(b))
    if node.op in _SHIFTS and not 0 <= b < node.dtype.bits:
        return None
    result = _INTEGER[node.op](a, b)
    if node.dtype.is_bool:
        return const(bool(result), node.dtype)
    return const(wrap(int(result), node.dtype), node.dtype)


def _float_binary(node: Binary, a: float, b: float) -> Expr | None:
    # The machine decides whether min and max of 0.0 and -0.0 give 0.0 or -0.0.
    if node.op in ("min", "max") and a == b == 0 and math.copysign(1, a) != math.copysign(1, b):
        return None
    return _evaluated(node)


def _evaluated(node: Expr) -> Expr:
    value = evaluate(node, {})
    return const(value.item() if not node.dtype.is_float else float(value), node.dtype)


def _unary(node: Unary) -> Expr:
    a = _value(node.a)
    if node.dtype.is_float:
        return const(-float(a), node.dtype)
    if node.dtype.is_bool:
        return const(not a, node.dtype)
    return const(wrap(-int(a) if node.op == "neg" else ~int(a), node.dtype), node.dtype)


def _call(node: Call) -> Expr | None:
    return _evaluated(node) if node.name in _EXACT_CALLS else None


def _value(node: Expr) -> Any:
    assert isinstance(node, Const)
    return node.value


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _floormod(a: int, b: int) -> int:
    return a % b if b else 0


def _truncdiv(a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncmod(a: int, b: int) -> int:
    return a - b * _truncdiv(a, b) if b else 0


_SHIFTS = ("shl", "shr")
#: Calls with the same result on every machine, unlike exp and kin.
_EXACT_CALLS = frozenset(
    "sqrt floor ceil round trunc abs copysign isnan isinf isfinite signbit popcount clz ctz".split()
)
_INTEGER: dict[str, Callable[[Any, Any], _Number]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}
_FOLD: dict[type[Expr], Callable[[Any], Expr | None]] = {
    Binary: _binary,
    Unary: _unary,
    Cast: lambda e: cast(e.a, e.dtype),
    Call: _call,
}
