"""Ramps and broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.bounds import bounds, is_exact, linear_bounds
from tilewright.arith.interval import Interval, is_index
from tilewright.arith.linear import Linear, constant_of, number
from tilewright.arith.linearize import linear
from tilewright.arith.nonnegative import CHEAP, is_nonnegative
from tilewright.arith.ranges import Ranges
from tilewright.ir import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    broadcast,
    const,
    is_pure,
)

Rule = Callable[[Any, Ranges], Expr | None]


def _of_broadcasts(e: Expr, _r: Ranges) -> Expr | None:
    """broadcast(a) op broadcast(b) = broadcast(a op b)"""
    lanes = e.dtype.lanes
    if lanes == 1:
        return None
    scalars: list[Expr] = []
    for operand in e.operands:
        scalar = operand.a if isinstance(operand, Broadcast) else operand
        if scalar.dtype.is_vector:
            return None
        scalars.append(scalar)
    return Broadcast(e.with_operands(tuple(scalars)), lanes)


def _of_broadcast_args(e: Call, ranges: Ranges) -> Expr | None:
    # Target intrinsics may give lanes a meaning of their own, and lanes may be regrouped.
    if "." in e.name or not is_pure(e) or not e.args:
        return None
    is_lanewise = all(a.dtype.lanes in (1, e.dtype.lanes) for a in e.args)
    return _of_broadcasts(e, ranges) if is_lanewise else None


def _of_broadcast_indices(e: Load, ranges: Ranges) -> Expr | None:
    return None if e.mask is not None else _of_broadcasts(e, ranges)


def _scalar_condition(e: Select, _r: Ranges) -> Expr | None:
    """select(broadcast(c), a, b) = select(c, a, b)"""
    condition = e.condition
    if isinstance(condition, Broadcast):
        return Select(condition.a, e.a, e.b)
    return None


def lane_form(e: Expr) -> tuple[Expr, Expr] | None:
    """Base and stride of a vector that is affine in its lanes."""
    if isinstance(e, Ramp):
        return e.base, e.stride
    return (e.a, constant_of(0, e.a.dtype)) if isinstance(e, Broadcast) else None


def vector_sum(total: Linear, ranges: Ranges) -> Expr:
    """A sum of vectors with its ramps and broadcasts combined into one."""
    dtype = total.dtype
    scalar = dtype.scalar
    base, stride = Linear({}, total.constant, scalar), Linear({}, 0, scalar)
    others: dict[Expr, int] = {}
    for atom, k in total.terms.items():
        form = lane_form(atom)
        if form is None:
            others[atom] = k
            continue
        base, stride = base.plus(linear(form[0]), k), stride.plus(linear(form[1]), k)
    lanes = _ramp(base.wrapped(), stride.wrapped(), dtype.lanes)
    if not others:
        return lanes
    rest = Linear(others, 0, dtype).expr()
    return rest if number(lanes) == 0 else Binary("add", rest, lanes)


def _ramp(base: Linear, stride: Linear, lanes: int) -> Expr:
    if stride.is_constant and stride.constant == 0:
        return Broadcast(base.expr(), lanes)
    return Ramp(base.expr(), stride.expr(), lanes)


def _still_ramp(e: Ramp, _r: Ranges) -> Expr | None:
    """ramp(a, 0) = broadcast(a)"""
    return Broadcast(e.base, e.dtype.lanes) if number(e.stride) == 0 else None


def _ramp_times(e: Binary, _r: Ranges) -> Expr | None:
    """ramp(a, s) * broadcast(b) = ramp(a*b, s*b)"""
    if not e.dtype.is_integer or not e.dtype.is_vector:
        return None
    x, y = (e.a, e.b) if isinstance(e.b, Broadcast) else (e.b, e.a)
    if not isinstance(y, Broadcast) or not isinstance(x, Ramp):
        return None
    return Ramp(Binary("mul", x.base, y.a), Binary("mul", x.stride, y.a), e.dtype.lanes)


def _divided_ramp(e: Binary, ranges: Ranges) -> Expr | None:
    """Lanes that stay within one period of the divisor, or step by whole periods."""
    c, ramp = number(e.b), e.a
    if not isinstance(ramp, Ramp) or c is None or c <= 0:
        return None
    stride, base = number(ramp.stride), linear(ramp.base)
    if stride is None or not _is_exact_ramp(base, stride, ramp, ranges):
        return None
    is_quotient = e.op == "floordiv"
    by = constant_of(c, base.dtype)
    if stride % c == 0:
        # ramp(a, c*s) // c = ramp(a // c, s), ramp(a, c*s) % c = broadcast(a % c)
        scalar = Binary(e.op, ramp.base, by)
        step = constant_of(stride // c, base.dtype)
        lanes = ramp.dtype.lanes
        return Ramp(scalar, step, lanes) if is_quotient else Broadcast(scalar, lanes)
    return _within_period(e, base, stride, c, ranges)


def _within_period(e: Binary, base: Linear, stride: int, c: int, ranges: Ranges) -> Expr | None:
    """ramp(c*q + r, s) // c = broadcast(q), % c = ramp(r, s), where r + s*lane is in 0 … c - 1"""
    whole, rest = base.split(lambda _, k: k % c == 0)
    shift = rest.constant // c
    rest = rest.shifted(-shift * c)
    lanes = e.dtype.lanes
    span = Interval(0, lanes - 1).scaled(stride)
    if not linear_bounds(rest, ranges).plus(span).lies_in(0, c - 1):
        return None
    if e.op == "floordiv":
        return Broadcast(whole.divided(c).shifted(shift).expr(), lanes)
    return Ramp(rest.expr(), constant_of(stride, base.dtype), lanes)


def _is_exact_ramp(base: Linear, stride: int, ramp: Ramp, ranges: Ranges) -> bool:
    if is_index(base.dtype):
        return True
    if not is_exact(base, ranges):
        return False
    span = Interval(0, ramp.dtype.lanes - 1).scaled(stride)
    return bounds(ramp.base, ranges).plus(span).within(Interval.of_type(base.dtype))


def _compared_ramp(e: Binary, ranges: Ranges) -> Expr | None:
    """a < b for every lane, or for none: by the first and the last lane of b - a"""
    a, b = lane_form(e.a), lane_form(e.b)
    if a is None or b is None or not is_index(e.a.dtype):
        return None
    # low <= high in every lane, or low > high in every lane
    low, high, gap = (a, b, 0) if e.op in ("lt", "le") else (b, a, 0)
    gap = 1 if e.op in ("lt", "gt") else 0
    base = linear(high[0]).minus(linear(low[0])).shifted(-gap)
    stride = linear(high[1]).minus(linear(low[1]))
    last = base.plus(stride, e.dtype.lanes - 1)
    if all(is_nonnegative(end, ranges, CHEAP) for end in (base, last)):
        return broadcast(const(True), e.dtype.lanes)
    if all(is_nonnegative(end.scaled(-1).shifted(-1), ranges, CHEAP) for end in (base, last)):
        return broadcast(const(False), e.dtype.lanes)
    return None


def _cast_ramp(e: Cast, ranges: Ranges) -> Expr | None:
    """cast(ramp(a, s)) = ramp(cast(a), cast(s)) where nothing wraps around"""
    ramp = e.a
    if not isinstance(ramp, Ramp) or not e.dtype.is_integer:
        return None
    stride, base = number(ramp.stride), linear(ramp.base)
    if stride is None or not _is_exact_ramp(base, stride, ramp, ranges):
        return None
    target = e.dtype.scalar
    return Ramp(Cast(target, ramp.base), constant_of(stride, target), e.dtype.lanes)


def _masked_load(e: Load, _r: Ranges) -> Expr | None:
    """A mask that is true in every lane can be dropped."""
    mask = e.mask.a if isinstance(e.mask, Broadcast) else e.mask
    return Load(e.buffer, e.indices) if isinstance(mask, Const) and mask.value else None


_ORDER: tuple[Rule, ...] = (_of_broadcasts, _compared_ramp)
_DIVISION: tuple[Rule, ...] = (_of_broadcasts, _divided_ramp)
_PLAIN = "div min max eq ne and or bitand bitor bitxor shl shr truncdiv truncmod not neg bitnot"

RULES: dict[object, tuple[Rule, ...]] = {
    **dict.fromkeys(f"add sub {_PLAIN}".split(), (_of_broadcasts,)),
    **dict.fromkeys(("lt", "le", "gt", "ge"), _ORDER),
    **dict.fromkeys(("floordiv", "floormod"), _DIVISION),
    "mul": (_of_broadcasts, _ramp_times),
    Select: (_scalar_condition, _of_broadcasts),
    Cast: (_of_broadcasts, _cast_ramp),
    Load: (_of_broadcast_indices, _masked_load),
    Call: (_of_broadcast_args,),
    Ramp: (_still_ramp,),
    Unary: (_of_broadcasts,),
}
