"""Vector instructions of x86-64 that LLVM does not select by itself."""

from __future__ import annotations

import math

import numpy as np

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.registers import joined, parts_of
from tilewright.codegen.llvm.types import LLType, LLValue, i32, llvm, number
from tilewright.ir import DType
from tilewright.target import Target

#: Prefix and suffix of the intrinsics' names, by bits of the vector.
_EXTREMES = {128: ("sse", ""), 256: ("avx", ".256"), 512: ("avx512", ".512")}
#: Lanes of float32 vectors with a reciprocal instruction, widest first.
_RECIPROCALS = (16, 8, 4)
#: The operand that makes AVX-512 instructions use the thread's rounding mode.
CURRENT_ROUNDING = 4


def has_vector(target: Target, dtype: DType) -> bool:
    """Whether the target has registers of exactly this width, for elements of 32 or 64 bits."""
    bits = dtype.bits * dtype.lanes
    is_whole = bits in _EXTREMES and dtype.bits in (32, 64)
    return is_whole and target.arch == "x86_64" and bits <= target.widest_vector


def extreme(cx: Context, op: str, dtype: DType, a: LLValue, b: LLValue) -> LLValue:
    """The minimum (`min`) or maximum (`max`) of two vectors; NaN where one is NaN.

    The instruction returns its second operand where one is NaN, so a NaN in the first has to be put
    back. In a reduction, `b` is the loaded value, which keeps the test for NaN out of the chain of
    dependent instructions.
    """
    bits, kind = dtype.bits * dtype.lanes, "s" if dtype.bits == 32 else "d"
    prefix, suffix = _EXTREMES[bits]
    if bits == 128 and kind == "d":
        prefix = "sse2"
    rounding = [llvm.Constant(i32, CURRENT_ROUNDING)] if bits == 512 else []
    name, args = f"llvm.x86.{prefix}.{op}.p{kind}{suffix}", [b, a, *rounding]
    found = cx.builder.call(cx.declare(name, a.type, [v.type for v in args]), args)
    return cx.builder.select(cx.builder.fcmp_unordered("uno", b, b), b, found)


def coarse_reciprocal(cx: Context, x: LLValue) -> LLValue:
    """1 / x to 14 bits."""
    lanes = x.type.count if isinstance(x.type, llvm.VectorType) else 1
    widths = (w for w in _RECIPROCALS if lanes % w == 0 and w * 32 <= cx.target.widest_vector)
    width = next(widths, None)
    if width is None:
        return cx.builder.fdiv(number(1.0, x.type), x)
    name = f"llvm.x86.avx512.rcp14.ps.{width * 32}"
    mask = llvm.Constant(llvm.IntType(max(8, width)), -1)
    parts: list[LLValue] = []
    for part in parts_of(cx, x, width):
        args = [part, number(0.0, part.type), mask]
        callee = cx.declare(name, part.type, [v.type for v in args])
        parts.append(cx.builder.call(callee, args))
    return joined(cx, parts)


def converts(target: Target, source: DType, wanted: DType) -> bool:
    """Whether `to_integers` applies to these vectors, which LLVM converts element by element."""
    fits = source.bits in (32, 64) and wanted.bits <= 32
    return fits and source.lanes > 1 and target.arch == "x86_64"


def to_integers(
    cx: Context,
    source: DType,
    wanted: DType,
    a: LLValue,
    kind: LLType,
    bounds: tuple[float, float],
) -> LLValue:
    """Floats converted to integers, saturated to the range of the type; 0 for NaN.

    `a` is known to be within `bounds`.
    """
    builder, signed = cx.builder, wanted.is_signed or wanted.bits < 32
    wide = llvm.VectorType(i32, source.lanes)
    # Undefined for numbers out of range: the selects below replace those.
    found = (builder.fptosi if signed else builder.fptoui)(a, wide)
    found = found if wanted.bits == 32 else builder.trunc(found, kind)
    least, greatest = int(wanted.min_value), int(wanted.max_value)
    if bounds[0] < least:
        below = builder.fcmp_ordered("<", a, number(float(least), a.type))
        found = builder.select(below, number(least, kind), found)
    if bounds[1] > greatest:
        above = builder.fcmp_ordered(">", a, number(_at_most(greatest, source), a.type))
        found = builder.select(above, number(greatest, kind), found)
    return builder.select(builder.fcmp_ordered("ord", a, a), found, number(0, kind))


def _at_most(value: int, dtype: DType) -> float:
    """The greatest float of a type that is at most `value`."""
    nearest = dtype.numpy.type(value)
    return float(nearest if int(nearest) <= value else np.nextafter(nearest, -math.inf))
