"""The type rules of expressions: what operations accept, and the types of their results."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tilewright.support.dtype import DType, bool_
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.ir.expr import Expr

COMPARISONS: Final = frozenset("eq ne lt le gt ge".split())
LOGIC: Final = frozenset(["and", "or"])
BITWISE: Final = frozenset("bitand bitor bitxor shl shr".split())
UNARY: Final = frozenset(["neg", "not", "bitnot"])

Number = bool | int | float


def unary_type(op: str, a: Expr) -> DType:
    wanted = {"not": a.dtype.is_bool, "bitnot": a.dtype.is_integer}
    if op not in UNARY or not wanted.get(op, not a.dtype.is_bool):
        raise UserError(f"cannot apply {op} to `{a}`", reason=f"it is {a.dtype}")
    return a.dtype


def binary_type(op: str, a: Expr, b: Expr) -> DType:
    require_same(op, a, b)
    dtype = a.dtype
    if op in COMPARISONS:
        return bool_.with_lanes(dtype.lanes)
    _require_fitting(op, a)
    return dtype


def require_same(op: str, a: Expr, b: Expr) -> None:
    if a.dtype is not b.dtype:
        raise UserError(
            f"cannot combine `{a}` and `{b}` by {op}",
            reason=f"one is {a.dtype}, the other {b.dtype}",
            remedy="convert one of them with .astype(…)",
        )


def require_condition(condition: Expr, lanes: int) -> None:
    """Refuse a condition of a select that is not bool, or has other lanes."""
    if not condition.dtype.is_bool or condition.dtype.lanes not in (1, lanes):
        raise UserError(
            f"cannot select on `{condition}`",
            reason=f"it is {condition.dtype}, not bool",
            remedy="compare it with something",
        )


def _require_fitting(op: str, a: Expr) -> None:
    if a.dtype.kind not in _FITTING.get(op, ()):
        remedy = "use // for whole numbers" if op == "div" else ""
        raise UserError(f"{op} does not apply to `{a}`", reason=f"it is {a.dtype}", remedy=remedy)


_INTEGERS: Final = ("int", "uint")
_NUMBERS: Final = (*_INTEGERS, "float")
#: The kinds of types that each operation applies to.
_FITTING: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("add", "sub", "mul"), _NUMBERS),
    **dict.fromkeys(("floordiv", "floormod", "truncdiv", "truncmod", *BITWISE), _INTEGERS),
    "div": ("float",),
    **dict.fromkeys(("min", "max"), (*_NUMBERS, "bool")),
    **dict.fromkeys(LOGIC, ("bool",)),
}


def fit(value: Number, dtype: DType) -> Number:
    """`value` as this type stores it; a number that it cannot hold is an error."""
    if dtype.is_vector:
        raise UserError(f"a constant of the vector type {dtype}", remedy="broadcast a scalar one")
    if dtype.is_float:
        return _round_float(float(value), dtype)
    if dtype.is_bool:
        return bool(value)
    if not math.isfinite(value) or int(value) != value:
        raise UserError(f"{value} does not fit {dtype}", reason="it is no whole number")
    if not dtype.min_value <= value <= dtype.max_value:
        raise UserError(
            f"{value} does not fit {dtype}",
            reason=f"that holds {dtype.min_value} to {dtype.max_value}",
        )
    return int(value)


def converted(value: Number, dtype: DType) -> Number:
    """A number as a cast to `dtype` gives it: integers wrap around, floats are truncated."""
    if dtype.is_float or dtype.is_bool:
        return value
    if isinstance(value, float):
        low, high = dtype.min_value, dtype.max_value
        return 0 if math.isnan(value) else int(max(low, min(high, value)))
    bits = int(value) & ((1 << dtype.bits) - 1)
    is_negative = dtype.kind == "int" and bits >> (dtype.bits - 1)
    return bits - (1 << dtype.bits) if is_negative else bits


def _round_float(value: float, dtype: DType) -> float:
    if dtype.name == "float64":
        return value
    if dtype.name == "float32":
        # The same as below in a tenth of the time: most constants are of this type.
        return ctypes.c_float(value).value
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.float64(value).astype(dtype.numpy))
