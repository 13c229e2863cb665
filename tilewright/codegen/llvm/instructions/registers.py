"""Splits vectors wider than a register, and joins the parts."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.types import LLValue, i32, lane_numbers, llvm


def parts_of(cx: Context, vector: LLValue, lanes: int) -> list[LLValue]:
    """A vector split into parts of `lanes` lanes."""
    count = vector.type.count
    return [_lanes(cx, vector, vector, range(k, k + lanes)) for k in range(0, count, lanes)]


def joined(cx: Context, parts: Sequence[LLValue]) -> LLValue:
    """The concatenation of vectors, whose count is a power of two."""
    while len(parts) > 1:
        both = range(2 * parts[0].type.count)
        parts = [_lanes(cx, *pair, both) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _lanes(cx: Context, a: LLValue, b: LLValue, order: range) -> LLValue:
    if len(order) == a.type.count:
        return a
    return cx.builder.shuffle_vector(a, b, lane_numbers(tuple(order)))


def splat(cx: Context, scalar: LLValue, lanes: int) -> LLValue:
    """A vector with `scalar` in every lane."""
    kind = llvm.VectorType(scalar.type, lanes)
    if isinstance(scalar, llvm.Constant):
        return llvm.Constant(kind, [scalar] * lanes)
    one = cx.builder.insert_element(
        llvm.Constant(kind, llvm.Undefined), scalar, llvm.Constant(i32, 0)
    )
    zeros = lane_numbers((0,) * lanes)
    return cx.builder.shuffle_vector(one, llvm.Constant(kind, llvm.Undefined), zeros)
