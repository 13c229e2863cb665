"""Values that are proportional to others, up to rounding."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import Binary, Cast, Const, Expr, Load, Select, is_const, loads_in, map_expr


def is_proportional(value: Expr, load: Load) -> bool:
    """Whether `value` is the loaded value times something, or 0 under some condition."""
    value = unrounded(value)
    if value is load:
        return True
    if isinstance(value, Select) and is_const(value.b, 0) and not _has(value.condition, load):
        return is_proportional(value.a, load)
    if not isinstance(value, Binary) or value.op != "mul":
        return False
    sides = [side for side in (value.a, value.b) if _has(side, load)]
    return len(sides) == 1 and is_proportional(sides[0], load)


def _has(value: Expr, load: Load) -> bool:
    return any(e is load for e in loads_in(value))


def unrounded(value: Expr) -> Expr:
    """A value without conversions between floats, and without clamping."""
    while True:
        if isinstance(value, Cast) and value.dtype.is_float and value.a.dtype.is_float:
            value = value.a
        elif isinstance(value, Select) and _limited(value.a) is value.b:
            value = value.b
        else:
            return value


def _limited(value: Expr) -> Expr | None:
    """The x of min(max(x, least), greatest)."""
    if not isinstance(value, Binary) or value.op != "min" or not isinstance(value.b, Const):
        return None
    inner = value.a
    if not isinstance(inner, Binary) or inner.op != "max" or not isinstance(inner.b, Const):
        return None
    return inner.a


def exchanged(value: Expr, parts: Mapping[Expr, Expr]) -> Expr:
    """`value` with whole subexpressions replaced, outermost first."""
    return map_expr(value, lambda _: None, dict(parts))
