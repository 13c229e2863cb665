"""Fixed-point arithmetic: rounded high products, and rounded quotients by powers of two.

Arm has vector instructions for both; elsewhere they are written out, the product in twice the
width. x86-64 multiplies every second 32-bit lane to 64 bits: even and odd lanes are multiplied
separately, without shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.types import LLValue, i32, lane_numbers, llvm, number, register_type
from tilewright.ir import Call, DType
from tilewright.target import Target

#: Lanes of an Arm register, and the element width that its instructions are used for.
_LANES: Final = 4
_WHOLE: Final = (4, 8, 16, 32, 64)
_BITS: Final = 32
_VECTOR: Final = llvm.VectorType(i32, _LANES)


class _Instructions(NamedTuple):
    """LLVM's names for the instructions."""

    product: str
    shift: str


_BY_ARCH: Final = {
    "aarch64": _Instructions("llvm.aarch64.neon.sqrdmulh", "llvm.aarch64.neon.srshl"),
    "arm": _Instructions("llvm.arm.neon.vqrdmulh", "llvm.arm.neon.vrshifts"),
}


def mulhi_doubled(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """Emits the intrinsic `mulhi_doubled`."""
    own = _instructions(cx.target, node.dtype)
    if own is not None:
        return _by_registers(cx, args, lambda a, b: _call(cx, own.product, a, b))
    if cx.target.arch == "x86_64" and _is_whole(node.dtype):
        return _by_second_lanes(cx, args)
    bits, b = node.dtype.bits, cx.builder
    wide = register_type(DType.of(f"int{2 * bits}").with_lanes(node.dtype.lanes))
    product = b.mul(b.sext(args[0], wide), b.sext(args[1], wide))
    rounded = b.ashr(b.add(product, number(1 << (bits - 2), wide)), number(bits - 1, wide))
    return b.trunc(rounded, register_type(node.dtype))


def shift_nearest(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """Emits the intrinsic `shift_nearest`. Arm's instruction shifts left, hence the negation."""
    own = _instructions(cx.target, node.dtype)
    if own is not None:
        return _by_registers(cx, args, lambda a, by: _call(cx, own.shift, a, cx.builder.neg(by)))
    (a, by), b, kind = args, cx.builder, register_type(node.dtype)
    half = b.lshr(b.shl(number(1, kind), by), number(1, kind))
    is_over = b.icmp_signed("!=", b.and_(a, half), number(0, kind))
    shifted = b.ashr(a, by)
    return b.select(is_over, b.add(shifted, number(1, kind)), shifted)


def _instructions(target: Target, dtype: DType) -> _Instructions | None:
    return _BY_ARCH.get(target.arch) if _is_whole(dtype) and target.has("neon") else None


def _is_whole(dtype: DType) -> bool:
    return dtype.bits == _BITS and dtype.lanes in _WHOLE


def _by_second_lanes(cx: Context, args: list[LLValue]) -> LLValue:
    """The rounded product; results of even lanes are taken from the lower half of a pair, those of
    odd lanes from the upper half."""
    b, lanes = cx.builder, args[0].type.count
    pairs = llvm.VectorType(llvm.IntType(2 * _BITS), lanes // 2)
    width, one = number(_BITS, pairs), number(1, pairs)
    wide = [b.bitcast(v, pairs) for v in args]
    even = b.mul(*(b.ashr(b.shl(v, width), width) for v in wide))
    odd = b.mul(*(b.ashr(v, width) for v in wide))
    half = number(1 << (_BITS - 2), pairs)
    low = b.lshr(b.add(even, half), number(_BITS - 1, pairs))
    high = b.shl(b.add(odd, half), one)
    mask = lane_numbers(tuple(k + (k % 2) * lanes for k in range(lanes)))
    found = [b.bitcast(v, args[0].type) for v in (low, high)]
    return b.shuffle_vector(*found, mask)


def _call(cx: Context, name: str, a: LLValue, b: LLValue) -> LLValue:
    return cx.intrinsic(name, _VECTOR, [a, b], [_VECTOR])


def _by_registers(
    cx: Context, args: list[LLValue], of: Callable[[LLValue, LLValue], LLValue]
) -> LLValue:
    """Applies `of` to the operands one register at a time."""
    pairs = zip(*(parts_of(cx, v, _LANES) for v in args), strict=True)
    return joined(cx, [of(*pair) for pair in pairs])
