"""Integers clamped to bytes, on Arm: by saturating narrowing instructions.

    i8(min(max(x, low), high) + zero)

ends every fixed-point layer. Narrowing to 16 bits saturates, zero points are added there, and
narrowing to 8 bits saturates again; only bounds inside the range of bytes still need compares,
sixteen lanes at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.clamps import as_clamp, as_shifted
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.types import LLType, LLValue, i8, llvm, number
from tilewright.ir import Cast, DType, Expr
from tilewright.target import Target

_INT32, _INT16 = DType.of("int32"), DType.of("int16")
_HALVES: Final = llvm.VectorType(llvm.IntType(16), 4)
_WORDS: Final = llvm.VectorType(llvm.IntType(16), 8)
_BYTES: Final = llvm.VectorType(i8, 8)
#: Supported numbers of lanes.
_WHOLE: Final = (8, 16, 32, 64)


class _Instructions(NamedTuple):
    """LLVM's names for narrowing signed integers with saturation to signed or unsigned ones."""

    signed: str
    unsigned: str


_BY_ARCH: Final = {
    "aarch64": _Instructions("llvm.aarch64.neon.sqxtn", "llvm.aarch64.neon.sqxtun"),
    "arm": _Instructions("llvm.arm.neon.vqmovns", "llvm.arm.neon.vqmovnsu"),
}


class Held(NamedTuple):
    """source + zero, clamped to [low, high]."""

    source: Expr
    zero: int
    low: int
    high: int

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.source,)


def as_held(target: Target, node: Cast) -> Held | None:
    """The clamp in a conversion to bytes, where these instructions can compute it."""
    dtype = node.dtype
    if dtype.bits != 8 or not dtype.is_integer or dtype.lanes not in _WHOLE:
        return None
    if target.arch not in _BY_ARCH or not target.has("neon"):
        return None
    if node.a.dtype.scalar is not _INT32:
        return None
    after = as_shifted(node.a)
    found = None if after is None else as_clamp(after[0])
    if after is None or found is None:
        return None
    zero, low, high = (int(v) for v in (after[1], found.low, found.high))
    fit = all(_INT16.min_value <= v <= _INT16.max_value for v in (zero, low, high))
    if not fit or not dtype.min_value <= low + zero <= high + zero <= dtype.max_value:
        return None
    return Held(found.value, zero, low + zero, high + zero)


def to_bytes(cx: Context, dtype: DType, held: Held, x: LLValue) -> LLValue:
    """The bytes for a clamped vector `x`."""
    own = _BY_ARCH[cx.target.arch]
    halves = [_call(cx, own.signed, _HALVES, part) for part in parts_of(cx, x, 4)]
    words = parts_of(cx, joined(cx, halves), 8)
    if held.zero:
        zero = number(held.zero, _WORDS)
        words = [_call(cx, "llvm.sadd.sat", _WORDS, word, zero) for word in words]
    narrow = own.signed if dtype.is_signed else own.unsigned
    found = joined(cx, [_call(cx, narrow, _BYTES, word) for word in words])
    for op, bound, end in (("max", held.low, dtype.min_value), ("min", held.high, dtype.max_value)):
        if bound != end:
            sign = "s" if dtype.is_signed else "u"
            found = _call(cx, f"llvm.{sign}{op}", found.type, found, number(bound, found.type))
    return found


def _call(cx: Context, name: str, result: LLType, *args: LLValue) -> LLValue:
    return cx.intrinsic(name, result, list(args), [result])
