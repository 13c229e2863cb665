"""Floats that are rounded to bytes, on x86-64 with AVX2: by packs that saturate.

    u8(i32(min(max(round(x) + z, 0), 255)))

is what ends every quantized layer. One instruction rounds and converts, and packs of integers to
narrower ones join vectors; LLVM rounds first, and picks bytes out by shuffles.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.clamps import as_clamp, as_shifted
from tilewright.codegen.llvm.types import LLType, LLValue, i8, i32, llvm, number
from tilewright.ir import Call, Cast, DType, Expr
from tilewright.target import Target

_FLOAT32, _INT32 = DType.of("float32"), DType.of("int32")
_F32, _I16 = llvm.FloatType(), llvm.IntType(16)
#: Lanes of a register of 32 bits an element, and of its halves, which packs join.
_LANES: Final = 8
_HALF: Final = _LANES // 2
#: Lanes of the vectors that it is for.
_WHOLE: Final = (8, 16, 32)
#: The packs to 16 and to 8 bits, by whether bytes are signed.
_PACKS: Final = {
    True: ("sse2.packssdw.128", "sse2.packsswb.128"),
    False: ("sse41.packusdw", "sse2.packuswb.128"),
}


class Rounded(NamedTuple):
    """round(source) + zero, held between two whole numbers."""

    source: Expr
    zero: float
    low: float
    high: float


def as_rounded(target: Target, node: Cast) -> Rounded | None:
    """What a conversion to bytes rounds, where packs are for it."""
    dtype = node.dtype
    if dtype.bits != 8 or not dtype.is_integer or dtype.lanes not in _WHOLE:
        return None
    # AVX-512 converts to bytes by one instruction.
    if target.arch != "x86_64" or not target.has("avx2") or target.has("avx512f"):
        return None
    whole = node.a
    if not isinstance(whole, Cast) or whole.dtype.scalar is not _INT32:
        return None
    if whole.a.dtype.scalar is not _FLOAT32:
        return None
    found = _held(whole.a)
    if found is None:
        return None
    fits = dtype.min_value <= found.low <= found.high <= dtype.max_value
    are_whole = all(float(v).is_integer() for v in found[1:])
    return found if fits and are_whole else None


def _held(expr: Expr) -> Rounded | None:
    """min(max(round(x) + zero, low), high), in whatever order."""
    clamp = as_clamp(expr)
    found = None if clamp is None else as_shifted(clamp.value)
    if clamp is None or found is None:
        return None
    rounded, zero = found
    if not isinstance(rounded, Call) or rounded.name != "round":
        return None
    return Rounded(rounded.args[0], zero, clamp.low, clamp.high)


def to_bytes(cx: Context, dtype: DType, rounded: Rounded, x: LLValue) -> LLValue:
    """The bytes of a vector that is known by its source; 0 for NaN."""
    parts = range(0, dtype.lanes, _LANES)
    whole = [_integers(cx, rounded, _slice(cx, x, start, _LANES)) for start in parts]
    halves = [_slice(cx, v, start, _HALF) for v in whole for start in (0, _HALF)]
    to_words, to_bytes = _PACKS[dtype.is_signed]
    words = [
        _call(cx, to_words, llvm.VectorType(_I16, 8), a, b)
        for a, b in zip(halves[::2], halves[1::2], strict=True)
    ]
    if len(words) == 1:
        # One half is enough.
        words *= 2
    packed = [
        _call(cx, to_bytes, llvm.VectorType(i8, 16), a, b)
        for a, b in zip(words[::2], words[1::2], strict=True)
    ]
    joined = packed[0]
    if len(packed) > 1:
        joined = _shuffled(cx, packed[0], packed[1], range(dtype.lanes))
    return _slice(cx, joined, 0, dtype.lanes)


def _integers(cx: Context, rounded: Rounded, x: LLValue) -> LLValue:
    """Eight floats as integers within the bounds."""
    kind, wide = llvm.VectorType(_F32, _LANES), llvm.VectorType(i32, _LANES)
    low, high = (number(v - rounded.zero, kind) for v in (rounded.low, rounded.high))
    # Both give their second operand where one is NaN.
    held = _call(cx, "avx.max.ps.256", kind, x, low)
    held = _call(cx, "avx.min.ps.256", kind, held, high)
    found = _call(cx, "avx.cvt.ps2dq.256", wide, held)
    if rounded.zero:
        found = cx.builder.add(found, number(int(rounded.zero), wide))
    if rounded.low == 0:
        return found
    return cx.builder.select(cx.builder.fcmp_ordered("ord", x, x), found, number(0, wide))


def _call(cx: Context, name: str, result: LLType, *args: LLValue) -> LLValue:
    callee = cx.declare(f"llvm.x86.{name}", result, [a.type for a in args])
    return cx.builder.call(callee, args)


def _slice(cx: Context, vector: LLValue, start: int, lanes: int) -> LLValue:
    if vector.type.count == lanes:
        return vector
    return _shuffled(cx, vector, vector, range(start, start + lanes))


def _shuffled(cx: Context, a: LLValue, b: LLValue, order: range) -> LLValue:
    mask = llvm.Constant(llvm.VectorType(i32, len(order)), [llvm.Constant(i32, k) for k in order])
    return cx.builder.shuffle_vector(a, b, mask)
