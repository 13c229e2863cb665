"""Index arithmetic in 32-bit registers, on machines that have no wider ones.

Indices are int64 in the IR. An operation whose operands and result provably fit 32 bits is computed
in 32; its value is sign-extended, which LLVM drops where the next operation truncates it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.arith import bounds
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.types import LLValue, i32, llvm, register_type
from tilewright.ir import Binary, Cast, Expr, Ramp, cast
from tilewright.support.dtype import index

#: Emits a node, given the values of its operands.
Emitter = Callable[[Context, Any, list[LLValue]], LLValue]

_LOW: Final = -(1 << 31)
_HIGH: Final = (1 << 31) - 1
#: Operations that give the same result in both widths if operands and result fit.
_OPERATIONS: Final = frozenset(
    "add sub mul floordiv floormod truncdiv truncmod min max eq ne lt le gt ge".split()
)


def fits(cx: Context, expr: Expr) -> bool:
    """Whether an index provably fits 32 bits, on a machine that gains by that."""
    if cx.target.index_bits != 32 or expr.dtype.scalar is not index:
        return False
    return bounds(expr, cx.ranges).lies_in(_LOW, _HIGH)


def emit_narrow(cx: Context, node: Expr, args: list[LLValue], emitter: Emitter) -> LLValue | None:
    """The value of a node computed in 32 bits; None where it may not fit, or is not arithmetic."""
    if cx.target.index_bits != 32 or not _is_arithmetic(node):
        return None
    gives_index = node.dtype.scalar is index
    if not all(fits(cx, e) for e in ((*node.operands, node) if gives_index else node.operands)):
        return None
    narrow = node.with_operands(tuple(cast(o, "int32") for o in node.operands))
    value = emitter(cx, narrow, [narrowed(cx, a) for a in args])
    return cx.builder.sext(value, register_type(node.dtype)) if gives_index else value


def _is_arithmetic(node: Expr) -> bool:
    if isinstance(node, Binary):
        return node.op in _OPERATIONS and node.a.dtype.scalar is index
    return isinstance(node, Ramp) or (isinstance(node, Cast) and node.dtype.is_float)


def narrowed(cx: Context, value: LLValue) -> LLValue:
    """The lower 32 bits of a value, or of each lane."""
    if isinstance(value, llvm.Constant) and isinstance(value.constant, int):
        return llvm.Constant(i32, value.constant)
    vector = isinstance(value.type, llvm.VectorType)
    return cx.builder.trunc(value, llvm.VectorType(i32, value.type.count) if vector else i32)
