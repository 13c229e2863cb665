"""Instructions of x86-64 on whole vectors that LLVM does not choose by itself."""

from __future__ import annotations

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.types import LLValue, i32, llvm
from tilewright.ir import DType
from tilewright.target import Target

#: Names that instructions on vectors of so many bits begin and end with.
_EXTREMES = {128: ("sse", ""), 256: ("avx", ".256"), 512: ("avx512", ".512")}
#: What instructions with a rounding mode of their own are given for that of the thread.
_CURRENT_ROUNDING = 4


def has_vector(target: Target, dtype: DType) -> bool:
    """Whether the target has registers of just this type, of 32 or 64 bits an element."""
    bits = dtype.bits * dtype.lanes
    is_whole = bits in _EXTREMES and dtype.bits in (32, 64)
    return is_whole and target.arch == "x86_64" and bits <= target.vector_bits


def extreme(cx: Context, op: str, dtype: DType, a: LLValue, b: LLValue) -> LLValue:
    """The lesser (`min`) or greater (`max`) of two; NaN where one is NaN.

    The instruction gives its second operand where one is NaN: that of the first is brought back.
    In a reduction, `b` is what was just read: only the instruction waits for the one before.
    """
    bits, kind = dtype.bits * dtype.lanes, "s" if dtype.bits == 32 else "d"
    prefix, suffix = _EXTREMES[bits]
    if bits == 128 and kind == "d":
        prefix = "sse2"
    rounding = [llvm.Constant(i32, _CURRENT_ROUNDING)] if bits == 512 else []
    name, args = f"llvm.x86.{prefix}.{op}.p{kind}{suffix}", [b, a, *rounding]
    found = cx.builder.call(cx.declare(name, a.type, [v.type for v in args]), args)
    return cx.builder.select(cx.builder.fcmp_unordered("uno", b, b), b, found)
