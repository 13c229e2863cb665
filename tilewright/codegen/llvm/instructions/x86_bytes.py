"""Floats rounded to bytes, on x86-64 with AVX2: by saturating packs.

    u8(i32(min(max(round(x) + z, 0), 255)))

ends every quantized layer. One instruction rounds and converts, and saturating packs narrow and
join vectors; LLVM would round first, and extract bytes by shuffles. Bounds are shifted by z, so
that they clamp the value before rounding:

    held = min(max(x, 0 - z), 255 - z);  u8(convert(held) + z)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.clamps import as_clamp
from tilewright.codegen.llvm.instructions.registers import joined, parts_of, splat
from tilewright.codegen.llvm.instructions.x86 import CURRENT_ROUNDING
from tilewright.codegen.llvm.types import LLType, LLValue, i8, i32, lane_numbers, llvm, number
from tilewright.ir import Binary, Broadcast, Call, Cast, Const, DType, Expr
from tilewright.target import Target

_FLOAT32, _INT32 = DType.of("float32"), DType.of("int32")
_F32, _I16 = llvm.FloatType(), llvm.IntType(16)
#: Supported numbers of lanes.
_WHOLE: Final = (8, 16, 32, 64)
#: Bits of integers that float32 represents exactly, with room for the range of a byte.
_NARROW: Final = 16
#: Packs work within parts of this many bits.
_PART: Final = 128


class _Instructions(NamedTuple):
    """The instructions for vectors of `lanes` 32-bit elements."""

    lanes: int
    max: str
    min: str
    convert: str
    #: The packs to 16 and to 8 bits, for signed and for unsigned bytes.
    signed: tuple[str, str]
    unsigned: tuple[str, str]


_AVX2: Final = _Instructions(
    8,
    "avx.max.ps.256",
    "avx.min.ps.256",
    "avx.cvt.ps2dq.256",
    ("sse2.packssdw.128", "sse2.packsswb.128"),
    ("sse41.packusdw", "sse2.packuswb.128"),
)
_AVX512: Final = _Instructions(
    16,
    "avx512.max.ps.512",
    "avx512.min.ps.512",
    "avx512.mask.cvtps2dq.512",
    ("avx512.packssdw.512", "avx512.packsswb.512"),
    ("avx512.packusdw.512", "avx512.packuswb.512"),
)


class Rounded(NamedTuple):
    """round(source) + zero, clamped to the integers [low, high]."""

    source: Expr
    #: A constant, or a narrow integer.
    zero: float | Expr
    low: float
    high: float

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.source, self.zero) if isinstance(self.zero, Expr) else (self.source,)


def as_rounded(target: Target, node: Cast) -> Rounded | None:
    """The rounding and clamp in a conversion to bytes, where packs can compute it."""
    dtype = node.dtype
    if dtype.bits != 8 or not dtype.is_integer or dtype.lanes not in _WHOLE:
        return None
    if _instructions(target, dtype.lanes) is None:
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
    are_whole = float(found.low).is_integer() and float(found.high).is_integer()
    return found if fits and are_whole else None


def _instructions(target: Target, lanes: int) -> _Instructions | None:
    """The widest instructions for a multiple of this many lanes."""
    if target.arch != "x86_64" or not target.has("avx2"):
        return None
    if target.has("avx512bw") and lanes % _AVX512.lanes == 0:
        return _AVX512 if target.vector_bits >= _AVX512.lanes * 32 else _AVX2
    return _AVX2


def _held(expr: Expr) -> Rounded | None:
    """Matches min(max(round(x) + zero, low), high), in either order."""
    clamp = as_clamp(expr)
    if clamp is None:
        return None
    for rounded, zero in _sums(clamp.value):
        number = _whole(zero)
        if number is not None and isinstance(rounded, Call) and rounded.name == "round":
            return Rounded(rounded.args[0], number, clamp.low, clamp.high)
    return None


def _sums(expr: Expr) -> list[tuple[Expr, Expr | None]]:
    """The (value, addend) pairs that an expression may be the sum of."""
    if isinstance(expr, Binary) and expr.op == "add":
        return [(expr.a, expr.b), (expr.b, expr.a)]
    return [(expr, None)]


def _whole(expr: Expr | None) -> float | Expr | None:
    """The scalar addend of all lanes, where it is an integer."""
    if expr is None:
        return 0.0
    while isinstance(expr, Broadcast | Cast) and not _is_narrow(expr):
        expr = expr.a
    if isinstance(expr, Const):
        return float(expr.value) if float(expr.value).is_integer() else None
    return expr if _is_narrow(expr) else None


def _is_narrow(expr: Expr) -> bool:
    """Whether it is a scalar integer that casts to int32 and float32 preserve."""
    return expr.dtype.is_integer and expr.dtype.bits <= _NARROW and not expr.dtype.is_vector


def to_bytes(cx: Context, dtype: DType, rounded: Rounded, args: Sequence[LLValue]) -> LLValue:
    """The bytes of a rounded vector, from its operands; 0 for NaN."""
    own = _instructions(cx.target, dtype.lanes)
    assert own is not None
    x, *others = args
    zero = _widened(cx, rounded, others)
    whole = [_integers(cx, own, rounded, zero, part) for part in parts_of(cx, x, own.lanes)]
    if len(whole) == 1 and own is _AVX512:
        return cx.builder.trunc(whole[0], llvm.VectorType(i8, dtype.lanes))
    to_words, to_bytes = own.signed if dtype.is_signed else own.unsigned
    parts = whole if own is _AVX512 else [h for v in whole for h in parts_of(cx, v, own.lanes // 2)]
    found = _packed(cx, to_bytes, i8, _packed(cx, to_words, _I16, parts))
    if own is _AVX512:
        found = [_in_order(cx, v) for v in found]
    return parts_of(cx, joined(cx, found), dtype.lanes)[0]


def _widened(cx: Context, rounded: Rounded, others: Sequence[LLValue]) -> LLValue:
    """The zero point as int32."""
    if not isinstance(rounded.zero, Expr):
        return llvm.Constant(i32, int(rounded.zero))
    return (cx.builder.sext if rounded.zero.dtype.is_signed else cx.builder.zext)(others[0], i32)


def _integers(
    cx: Context, own: _Instructions, rounded: Rounded, zero: LLValue, x: LLValue
) -> LLValue:
    """Floats as integers, clamped to the bounds."""
    builder = cx.builder
    kind, wide = llvm.VectorType(_F32, own.lanes), llvm.VectorType(i32, own.lanes)
    if isinstance(rounded.zero, Expr):
        shift = splat(cx, builder.sitofp(zero, _F32), own.lanes)
        low, high = (builder.fsub(number(v, kind), shift) for v in (rounded.low, rounded.high))
    else:
        low, high = (number(v - rounded.zero, kind) for v in (rounded.low, rounded.high))
    rounding = [llvm.Constant(i32, CURRENT_ROUNDING)] if own is _AVX512 else []
    # min and max return their second operand where one is NaN.
    held = _call(cx, own.max, kind, x, low, *rounding)
    held = _call(cx, own.min, kind, held, high, *rounding)
    masked = [number(0, wide), llvm.Constant(_I16, -1)] if own is _AVX512 else []
    found = _call(cx, own.convert, wide, held, *masked, *rounding)
    if rounded.zero != 0:
        found = builder.add(found, splat(cx, zero, own.lanes))
    if rounded.low == 0:
        return found
    return builder.select(builder.fcmp_ordered("ord", x, x), found, number(0, wide))


def _packed(cx: Context, name: str, element: LLType, vectors: list[LLValue]) -> list[LLValue]:
    """Packs pairs of vectors to half the width; a single vector is paired with itself."""
    pairs = zip(vectors[::2], vectors[1::2] or vectors, strict=True)
    kind = llvm.VectorType(element, 2 * vectors[0].type.count)
    return [_call(cx, name, kind, a, b) for a, b in pairs]


def _in_order(cx: Context, packed: LLValue) -> LLValue:
    """Restores the order of bytes after packs, which work within 128-bit parts."""
    count = packed.type.count // 4
    parts = count * 32 // _PART
    words = cx.builder.bitcast(packed, llvm.VectorType(i32, count))
    mask = lane_numbers(tuple(4 * k + v for v in range(4) for k in range(parts)))
    return cx.builder.bitcast(cx.builder.shuffle_vector(words, words, mask), packed.type)


def _call(cx: Context, name: str, result: LLType, *args: LLValue) -> LLValue:
    callee = cx.declare(f"llvm.x86.{name}", result, [a.type for a in args])
    return cx.builder.call(callee, args)
