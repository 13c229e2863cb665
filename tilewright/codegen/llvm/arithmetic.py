"""Unary and binary operations and conversions in LLVM."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import prove
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions import arm_bytes, x86, x86_bytes
from tilewright.codegen.llvm.types import LLValue, i64, llvm, number, register_type
from tilewright.ir import Binary, Broadcast, Cast, Const, DType, Expr, Unary
from tilewright.support.dtype import index

#: Lets LLVM fuse a product with a sum that has the flag too.
_FUSED = ("contract",)


def emit_unary(cx: Context, node: Unary, args: list[LLValue]) -> LLValue:
    (a,) = args
    if node.op == "neg":
        return cx.builder.fneg(a) if node.dtype.is_float else cx.builder.neg(a)
    return cx.builder.not_(a)


def emit_binary(cx: Context, node: Binary, args: list[LLValue]) -> LLValue:
    return _BINARY[node.op](cx, node, *args)


def _arithmetic(integer: str, floating: str) -> Callable[..., LLValue]:
    def emit(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
        if node.dtype.is_float:
            fuses = (node.op == "mul" and not _doubles(node)) or node in cx.accumulations
            return getattr(cx.builder, floating)(a, b, flags=_FUSED if fuses else ())
        return getattr(cx.builder, integer)(a, b)

    return emit


def _doubles(node: Binary) -> bool:
    """Whether a product doubles: LLVM makes x + x of it, which could be fused like a sum."""
    factors = (e.a if isinstance(e, Broadcast) else e for e in (node.a, node.b))
    return any(isinstance(e, Const) and e.value in (2.0, -2.0) for e in factors)


def _shift(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
    """Shifts by the width or more give 0 (or the sign), as repeated shifts by one would."""
    bits = node.dtype.bits
    limit = number(bits, a.type)
    inside = cx.builder.icmp_unsigned("<", b, limit)
    if node.op == "shr" and node.dtype.is_signed:
        clamped = cx.builder.select(inside, b, number(bits - 1, a.type))
        return cx.builder.ashr(a, clamped)
    shift = cx.builder.shl if node.op == "shl" else cx.builder.lshr
    safe = cx.builder.select(inside, b, number(0, a.type))
    return cx.builder.select(inside, shift(a, safe), number(0, a.type))


def _constant_shift(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
    amount = _constant_of(node.b)
    if amount is None or not 0 <= amount < node.dtype.bits:
        return _shift(cx, node, a, b)
    if node.op == "shl":
        return cx.builder.shl(a, b)
    return cx.builder.ashr(a, b) if node.dtype.is_signed else cx.builder.lshr(a, b)


_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _compare(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
    predicate, dtype = _PREDICATES[node.op], node.a.dtype
    if dtype.is_float:
        ordered = cx.builder.fcmp_unordered if node.op == "ne" else cx.builder.fcmp_ordered
        return ordered(predicate, a, b)
    signed = dtype.kind == "int"
    return (cx.builder.icmp_signed if signed else cx.builder.icmp_unsigned)(predicate, a, b)


def _extreme(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
    if not node.dtype.is_float:
        signed = node.dtype.kind == "int"
        compare = cx.builder.icmp_signed if signed else cx.builder.icmp_unsigned
        return cx.builder.select(compare("<" if node.op == "min" else ">", a, b), a, b)
    constants = [_constant_of(node.a), _constant_of(node.b)]
    plain = constants == [None, None]
    if plain and x86.has_vector(cx.target, node.dtype):
        return x86.extreme(cx, node.op, node.dtype, a, b)
    if plain and not cx.target.has_float_unit:
        return _compared_extreme(cx, node, a, b)
    if cx.target.has_nan_extremes or plain:
        name = "llvm.minimum" if node.op == "min" else "llvm.maximum"
        # nsz: ordering -0 below +0 would take x86-64 twice as many instructions.
        return cx.intrinsic(name, a.type, [a, b], [a.type], fastmath=("nsz",))
    if constants[0] is not None:
        a, b = b, a
    # Against a constant, a compare that is false for NaN keeps the NaN: a single instruction.
    beyond = cx.builder.fcmp_ordered(">" if node.op == "min" else "<", a, b)
    return cx.builder.select(beyond, b, a)


def _compared_extreme(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
    """By comparisons, where LLVM would call the C library: NaN if either operand is NaN."""
    compare = cx.builder.fcmp_unordered
    chosen = cx.builder.select(compare("<" if node.op == "min" else ">", a, b), a, b)
    return cx.builder.select(compare("uno", b, b), b, chosen)


def _constant_of(expr: Expr) -> int | float | None:
    if isinstance(expr, Broadcast):
        expr = expr.a
    if not isinstance(expr, Const) or expr.value != expr.value:
        return None
    return expr.value


def _division(cx: Context, node: Binary, a: LLValue, b: LLValue) -> LLValue:
    """Integer division and remainder without traps: by 0 gives 0, by -1 negates."""
    builder = cx.builder
    floors, remains = node.op.startswith("floor"), node.op.endswith("mod")
    divisor = int(_constant_of(node.b) or 0)
    if divisor > 0 and not divisor & (divisor - 1) and floors:
        return _by_power_of_two(cx, node, a, divisor)
    signed = node.dtype.kind == "int" and not _is_natural(cx, node)
    if divisor not in (0, -1):
        return _divide(cx, a, b, signed=signed, floors=floors, remains=remains)
    zero, one = number(0, a.type), number(1, a.type)
    if not signed and _is_at_least(cx, node.b, 1):
        return _unseen(cx, _divide(cx, a, b, signed=False, remains=remains))
    by_zero = builder.icmp_signed("==", b, zero)
    if not signed:
        quotient = _divide(cx, a, builder.select(by_zero, one, b), signed=False, remains=remains)
        return builder.select(by_zero, zero, quotient)
    negates = builder.icmp_signed("==", b, number(-1, a.type))
    safe = builder.select(builder.or_(by_zero, negates), one, b)
    result = _divide(cx, a, safe, signed=True, floors=floors, remains=remains)
    result = builder.select(negates, zero if remains else builder.neg(a), result)
    return builder.select(by_zero, zero, result)


def _unseen(cx: Context, value: LLValue) -> LLValue:
    """Hides from LLVM that a value is a quotient. Loops that start at a quotient otherwise get no
    stepped pointers: LLVM would have to divide, and does not know the divisor to be positive."""
    if cx.target.kind.device != "cpu" or value.type != i64 or cx.target.pointer_bits != 64:
        return value
    return cx.builder.asm(llvm.FunctionType(i64, [i64]), "", "=r,0", [value], side_effect=False)


def _is_natural(cx: Context, node: Binary) -> bool:
    """Whether it divides non-negative indices, for which unsigned division is correct."""
    return _is_at_least(cx, node.a, 0) and _is_at_least(cx, node.b, 0)


def _is_at_least(cx: Context, expr: Expr, least: int) -> bool:
    """Whether an index is provably at least `least`."""
    return expr.dtype is index and prove(expr >= least, cx.ranges)


def _by_power_of_two(cx: Context, node: Binary, a: LLValue, divisor: int) -> LLValue:
    if node.op == "floormod":
        return cx.builder.and_(a, number(divisor - 1, a.type))
    shift = cx.builder.ashr if node.dtype.kind == "int" else cx.builder.lshr
    return shift(a, number(divisor.bit_length() - 1, a.type))


def _divide(
    cx: Context, a: LLValue, b: LLValue, *, signed: bool, remains: bool, floors: bool = False
) -> LLValue:
    builder = cx.builder
    if not signed:
        return builder.urem(a, b) if remains else builder.udiv(a, b)
    remainder = builder.srem(a, b)
    if not floors:
        return remainder if remains else builder.sdiv(a, b)
    zero = number(0, a.type)
    differ = builder.icmp_signed("<", builder.xor(remainder, b), zero)
    adjust = builder.and_(builder.icmp_signed("!=", remainder, zero), differ)
    if remains:
        return builder.add(remainder, builder.select(adjust, b, zero))
    return builder.sub(builder.sdiv(a, b), builder.select(adjust, number(1, a.type), zero))


def _plain(method: str) -> Callable[..., LLValue]:
    def emit(cx: Context, _node: Binary, a: LLValue, b: LLValue) -> LLValue:
        return getattr(cx.builder, method)(a, b)

    return emit


_BINARY: dict[str, Callable[..., LLValue]] = {
    "add": _arithmetic("add", "fadd"),
    "sub": _arithmetic("sub", "fsub"),
    "mul": _arithmetic("mul", "fmul"),
    "div": _plain("fdiv"),
    "min": _extreme,
    "max": _extreme,
    "and": _plain("and_"),
    "or": _plain("or_"),
    "bitand": _plain("and_"),
    "bitor": _plain("or_"),
    "bitxor": _plain("xor"),
    "shl": _constant_shift,
    "shr": _constant_shift,
    **dict.fromkeys(("floordiv", "floormod", "truncdiv", "truncmod"), _division),
    **dict.fromkeys(_PREDICATES, _compare),
}


# ---- conversions --------------------------------------------------------------------------------


def emit_cast(cx: Context, node: Cast, args: list[LLValue]) -> LLValue:
    a, *_ = args
    source, wanted = node.a.dtype, node.dtype
    kind = register_type(wanted)
    if wanted.is_bool:
        return _to_bool(cx, source, a)
    rounded = x86_bytes.as_rounded(cx.target, node)
    if rounded is not None:
        return x86_bytes.to_bytes(cx, wanted, rounded, args)
    held = arm_bytes.as_held(cx.target, node)
    if held is not None:
        return arm_bytes.to_bytes(cx, wanted, held, a)
    if source.is_float and not wanted.is_float and x86.converts(cx.target, source, wanted):
        return x86.to_integers(cx, source, wanted, a, kind, _bounds(node.a))
    if source.is_float:
        return _from_float(cx, source, wanted, a, kind)
    if wanted.is_float:
        signed = source.kind == "int"
        return (cx.builder.sitofp if signed else cx.builder.uitofp)(a, kind)
    return _resize(cx, source, wanted, a, kind)


def _bounds(expr: Expr) -> tuple[float, float]:
    """Bounds of an expression that its outer min and max imply, where it is not NaN."""
    low, high = -math.inf, math.inf
    while isinstance(expr, Binary) and expr.op in ("min", "max"):
        found = [(c, other) for c, other in _sides(expr) if c is not None]
        if not found:
            break
        (bound, expr), is_min = found[0], expr.op == "min"
        # The outer bound is applied last, so it clamps the inner ones.
        low = low if is_min else max(low, min(bound, high))
        high = min(high, max(bound, low)) if is_min else high
    return low, high


def _sides(node: Binary) -> list[tuple[float | None, Expr]]:
    return [(_constant_of(node.a), node.b), (_constant_of(node.b), node.a)]


def _to_bool(cx: Context, source: DType, a: LLValue) -> LLValue:
    zero = number(0.0 if source.is_float else 0, a.type)
    if source.is_float:
        return cx.builder.fcmp_unordered("!=", a, zero)
    return cx.builder.icmp_unsigned("!=", a, zero)


def _from_float(cx: Context, source: DType, wanted: DType, a: LLValue, kind: Any) -> LLValue:
    if wanted.is_float:
        if wanted.bits == source.bits:
            return a
        return (cx.builder.fpext if wanted.bits > source.bits else cx.builder.fptrunc)(a, kind)
    name = "llvm.fptosi.sat" if wanted.is_signed else "llvm.fptoui.sat"
    return cx.intrinsic(name, kind, [a], [kind, a.type])


def _resize(cx: Context, source: DType, wanted: DType, a: LLValue, kind: Any) -> LLValue:
    from_bits = 1 if source.is_bool else source.bits
    if wanted.bits == from_bits:
        return a
    if wanted.bits < from_bits:
        return cx.builder.trunc(a, kind)
    return (cx.builder.sext if source.kind == "int" else cx.builder.zext)(a, kind)
