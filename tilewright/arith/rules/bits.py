"""Operations on bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.linear import constant_of, number
from tilewright.arith.ranges import Ranges
from tilewright.ir import Binary, Expr, Unary

Rule = Callable[[Any, Ranges], Expr | None]


def _constant_right(e: Binary, _r: Ranges) -> Expr | None:
    swap = number(e.a) is not None and number(e.b) is None
    return Binary(e.op, e.b, e.a) if swap else None


def _is_all_ones(e: Expr) -> bool:
    return number(e) in (-1, e.dtype.max_value if e.dtype.kind == "uint" else -1)


def _is_zero(e: Expr) -> bool:
    return number(e) == 0


def _double_not(e: Unary, _r: Ranges) -> Expr | None:
    return e.a.a if isinstance(e.a, Unary) and e.a.op == "bitnot" else None


RULES: dict[object, tuple[Rule, ...]] = {
    "bitand": (
        _constant_right,  # c & x = x & c
        lambda e, _: e.a if e.a is e.b else None,  # x & x = x
        lambda e, _: e.b if _is_zero(e.b) else None,  # x & 0 = 0
        lambda e, _: e.a if _is_all_ones(e.b) else None,  # x & ~0 = x
    ),
    "bitor": (
        _constant_right,  # c | x = x | c
        lambda e, _: e.a if e.a is e.b else None,  # x | x = x
        lambda e, _: e.a if _is_zero(e.b) else None,  # x | 0 = x
        lambda e, _: e.b if _is_all_ones(e.b) else None,  # x | ~0 = ~0
    ),
    "bitxor": (
        _constant_right,  # c ^ x = x ^ c
        lambda e, _: constant_of(0, e.dtype) if e.a is e.b else None,  # x ^ x = 0
        lambda e, _: e.a if _is_zero(e.b) else None,  # x ^ 0 = x
        lambda e, _: Unary("bitnot", e.a) if _is_all_ones(e.b) else None,  # x ^ ~0 = ~x
    ),
    "shl": (lambda e, _: e.a if _is_zero(e.b) or _is_zero(e.a) else None,),  # x << 0, 0 << x
    "shr": (lambda e, _: e.a if _is_zero(e.b) or _is_zero(e.a) else None,),  # x >> 0, 0 >> x
    "bitnot": (_double_not,),  # ~~x = x
}
