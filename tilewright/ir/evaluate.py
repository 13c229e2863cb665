"""The value of an expression, by NumPy: the semantics of `ir.expr` in executable form.

Every variable may be a whole array of values; the arrays broadcast against each other. A vector
expression has its lanes along an additional last axis. Nothing is contracted to a fused operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
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
    Var,
)
from tilewright.ir.intrinsics import INTRINSICS
from tilewright.ir.rounding import Array, convert, fused_multiply_add
from tilewright.support.dtype import DType, float32, float64
from tilewright.support.errors import UserError

#: Gives the values of a load: for the buffer, one array per index, and the mask if there is one.
Loads = Callable[[Buffer, tuple[Array, ...], Array | None], Any]
_Values = dict[Expr, Array]
_Rule = Callable[..., Any]


def evaluate(expr: Expr, env: Mapping[Var, Any], loads: Loads | None = None) -> Array:
    """The value of `expr` where `env` gives its variables and `loads` the elements of buffers.

    A `Select` whose condition is the same everywhere evaluates the chosen side alone. Where it
    differs between elements both are evaluated, and `loads` may give anything for unused ones.
    """
    values: _Values = {}
    pending = [expr]
    with np.errstate(all="ignore"):
        while pending:
            node = pending[-1]
            missing = [o for o in _needed(node, values) if o not in values]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if node not in values:
                values[node] = np.asarray(_value(node, values, env, loads))
    return values[expr]


def operation(node: Expr) -> _Rule:
    """The function of `node` from the values of its operands, in their order; it must have some.

    For callers that decide themselves what is evaluated when, and do loads themselves.
    """
    if isinstance(node, Unary):
        return _UNARY[node.op]
    if isinstance(node, Binary):
        return _BINARY[node.op]
    rule = _NODES[type(node)]
    return lambda *values: rule(node, dict(zip(node.operands, values, strict=True)))


def _needed(node: Expr, values: _Values) -> tuple[Expr, ...]:
    if not isinstance(node, Select):
        return node.operands
    condition = values.get(node.condition)
    if condition is None:
        return (node.condition,)
    if condition.all():
        return (node.a,)
    return node.operands if condition.any() else (node.b,)


def _value(node: Expr, values: _Values, env: Mapping[Var, Any], loads: Loads | None) -> Any:
    if isinstance(node, Var):
        return _bound(node, env)
    if isinstance(node, Load):
        return _loaded(node, values, loads)
    return _NODES[type(node)](node, values)


def _bound(var: Var, env: Mapping[Var, Any]) -> Array:
    if var not in env:
        raise UserError(f"`{var.name}` has no value", remedy="give one in the environment")
    return np.asarray(env[var], dtype=var.dtype.numpy)


def _loaded(node: Load, values: _Values, loads: Loads | None) -> Array:
    if loads is None:
        raise UserError(
            f"cannot evaluate a load of {node.buffer.name}",
            reason="its contents are unknown here",
            remedy="pass `loads`",
        )
    parts = [_with_lanes(values[o], o, node) for o in node.operands]
    mask = None if node.mask is None else parts.pop()
    return np.asarray(loads(node.buffer, tuple(parts), mask), dtype=node.dtype.numpy)


def _with_lanes(value: Array, operand: Expr, user: Expr) -> Array:
    """A scalar among vectors gets an axis for lanes."""
    return value[..., None] if operand.dtype.lanes < user.dtype.lanes else value


# ---- one row per node, operator and intrinsic ---------------------------------------------------


def _const(node: Const, _values: _Values) -> Array:
    return np.array(node.value, dtype=node.dtype.numpy)


def _unary(node: Unary, values: _Values) -> Any:
    return _UNARY[node.op](values[node.a])


def _binary(node: Binary, values: _Values) -> Any:
    return _BINARY[node.op](values[node.a], values[node.b])


def _select(node: Select, values: _Values) -> Array:
    condition = _with_lanes(values[node.condition], node.condition, node)
    a, b = values.get(node.a), values.get(node.b)
    if a is None or b is None:
        chosen = b if a is None else a
        assert chosen is not None
        return np.broadcast_to(chosen, np.broadcast_shapes(chosen.shape, condition.shape))
    return np.where(condition, a, b)


def _cast(node: Cast, values: _Values) -> Array:
    return convert(values[node.a], node.dtype)


def _ramp(node: Ramp, values: _Values) -> Array:
    base, stride = values[node.base][..., None], values[node.stride][..., None]
    return base + stride * np.arange(node.dtype.lanes).astype(base.dtype)


def _broadcast(node: Broadcast, values: _Values) -> Array:
    value = values[node.a]
    return np.broadcast_to(value[..., None], (*value.shape, node.dtype.lanes))


def _call(node: Call, values: _Values) -> Any:
    args = [values[a] for a in node.args]
    if node.name.startswith("reinterpret_"):
        return _seen_as(args[0], node.args[0].dtype, node.dtype)
    if node.name == "fma":
        return fused_multiply_add(args[0], args[1], args[2], node.dtype)
    if node.name in _EXACT:
        return _EXACT[node.name](*args)
    known = INTRINSICS.get(node.name)
    if known is not None and known.value is not None:
        return known.value(*args)
    if node.name not in _ROUNDED:
        raise UserError(f"cannot evaluate {node.name}", reason="it has no value outside a machine")
    wide = np.float64 if _is_exact_in_float64(node) else np.longdouble
    result = np.asarray(_ROUNDED[node.name](*(a.astype(wide) for a in args)))
    if node.dtype.is_bool or node.dtype.scalar is float64:
        return result.astype(node.dtype.numpy)
    return convert(result, node.dtype)


def _is_exact_in_float64(node: Call) -> bool:
    """Whether float64 is wide enough: a 64-bit longdouble would round a square root twice."""
    return node.args[0].dtype.bits <= float32.bits or node.name in _ROUNDED_BY_NUMPY


def _seen_as(value: Any, before: DType, wanted: DType) -> Any:
    """The same bits as another type; where the width differs, lanes are split or joined."""
    bits = np.array(value, order="C")
    if before.lanes == wanted.lanes:
        return bits.view(wanted.numpy)
    lanes = (bits if before.is_vector else bits[..., None]).view(wanted.numpy)
    return lanes if wanted.is_vector else lanes[..., 0]


def _truncdiv(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.add(quotient, inexact.astype(quotient.dtype))


def _bits_of(a: Array) -> Array:
    """The bits of an integer along a new last axis, the highest first."""
    width = a.dtype.itemsize
    as_bytes = np.array(a.astype(a.dtype.newbyteorder(">")), order="C")[..., None].view(np.uint8)
    return np.unpackbits(as_bytes.reshape(*a.shape, width), axis=-1)


def _popcount(a: Array) -> Array:
    return _bits_of(a).sum(axis=-1).astype(a.dtype)


def _leading_zeros(bits: Array, dtype: np.dtype[Any]) -> Array:
    first = np.argmax(bits, axis=-1).astype(dtype)
    return np.where(bits.any(axis=-1), first, np.array(bits.shape[-1], dtype))


def _mulhi(a: Array, b: Array) -> Array:
    width = 8 * a.dtype.itemsize
    if width < 64:
        return (a.astype(np.int64) * b.astype(np.int64) >> width).astype(a.dtype)
    high = _mulhi_unsigned(a.astype(np.uint64), b.astype(np.uint64)).astype(a.dtype)
    zero = np.zeros((), a.dtype)
    return high - np.where(a < 0, b, zero) - np.where(b < 0, a, zero)


def _mulhi_doubled(a: Array, b: Array) -> Array:
    """For types of less than 64 bits."""
    width = 8 * a.dtype.itemsize
    product = a.astype(np.int64) * b.astype(np.int64)
    return ((product + (1 << (width - 2))) >> (width - 1)).astype(a.dtype)


def _shift_nearest(a: Array, by: Array) -> Array:
    """For types of less than 64 bits."""
    half = (np.int64(1) << by.astype(np.int64)) >> 1
    return ((a.astype(np.int64) + half) >> by).astype(a.dtype)


def _mulhi_unsigned(a: Array, b: Array) -> Array:
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & low)
    return a_high * b_high + (middle >> half) + (other >> half)


def _clz(a: Array) -> Array:
    return _leading_zeros(_bits_of(a), a.dtype)


def _ctz(a: Array) -> Array:
    return _leading_zeros(_bits_of(a)[..., ::-1], a.dtype)


def _erf(a: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(a.astype(np.float64)), a.dtype)


def _sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def _rsqrt(a: Array) -> Array:
    return 1 / np.sqrt(a)


def _from_numpy(names: str, prefix: str = "") -> dict[str, _Rule]:
    """NumPy's functions by the names of the IR; NumPy has arcsin for asin."""
    return {n: getattr(np, prefix + n[1:] if prefix else n) for n in names.split()}


_NODES: dict[type[Expr], _Rule] = {
    Const: _const,
    Unary: _unary,
    Binary: _binary,
    Select: _select,
    Cast: _cast,
    Call: _call,
    Ramp: _ramp,
    Broadcast: _broadcast,
}
_UNARY: dict[str, _Rule] = {"neg": np.negative, "not": np.logical_not, "bitnot": np.invert}
#: NumPy's integer division by zero gives 0 (and a warning), as ours does.
_BINARY: dict[str, _Rule] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "truncdiv": _truncdiv,
    "truncmod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_EXACT: dict[str, _Rule] = {
    "abs": np.abs,
    "copysign": np.copysign,
    "popcount": _popcount,
    "clz": _clz,
    "ctz": _ctz,
    "mulhi": _mulhi,
    "mulhi_doubled": _mulhi_doubled,
    "shift_nearest": _shift_nearest,
}
#: NumPy gives the nearest float64.
_ROUNDED_BY_NUMPY: dict[str, _Rule] = {
    **_from_numpy("sqrt floor ceil trunc isnan isinf isfinite signbit"),
    "round": np.rint,
}
#: Computed in a wider type and rounded from there.
_ROUNDED: dict[str, _Rule] = {
    "coarse_exp": np.exp,
    "coarse_reciprocal": np.reciprocal,
    **_from_numpy("exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh"),
    **_from_numpy("asin acos atan asinh acosh atanh", prefix="arc"),
    **_ROUNDED_BY_NUMPY,
    "atan2": np.arctan2,
    "pow": np.power,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "coarse_sigmoid": _sigmoid,
    "rsqrt": _rsqrt,
}
