"""Emits expressions as LLVM values: one row of a table per kind of node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import copysign
from typing import Any

from tilewright.codegen.llvm.arithmetic import emit_binary, emit_cast, emit_unary
from tilewright.codegen.llvm.calls import emit_call
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions.arm_bytes import as_held
from tilewright.codegen.llvm.instructions.nibbles import as_nibbles, to_floats
from tilewright.codegen.llvm.instructions.registers import splat
from tilewright.codegen.llvm.instructions.x86_bytes import as_rounded
from tilewright.codegen.llvm.memory import emit_load, load_start
from tilewright.codegen.llvm.narrow_index import emit_narrow
from tilewright.codegen.llvm.types import LLValue, llvm, register_type
from tilewright.ir import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    is_pure,
)

#: Bits of the narrowest type whose masked loads zero the other lanes by themselves.
_NARROWEST_MASKED = 16
_NOTHING: frozenset[Buffer] = frozenset()


def emit(cx: Context, root: Expr) -> LLValue:
    """The value of `root` at the builder's position.

    Values of pure expressions are reused while they dominate what follows; those that read memory,
    until it is written to. Calls with effects are shared within `root` only.
    """
    return emit_interleaved(cx, [root])[0]


def emit_interleaved(cx: Context, roots: Sequence[Expr]) -> list[LLValue]:
    """The values of `roots`, one operation of each in turn, so that neighbours are independent."""
    values: list[dict[Expr, LLValue]] = [{} for _ in roots]
    running = [_operations(cx, root, own) for root, own in zip(roots, values, strict=True)]
    while running:
        running = [r for r in running if next(r, False)]
    return [own[root] for root, own in zip(roots, values, strict=True)]


def _operations(cx: Context, root: Expr, values: dict[Expr, LLValue]) -> Iterator[bool]:
    """Emit the nodes of `root`, operands first, into `values`; yields after each operation."""
    reads: dict[Expr, frozenset[Buffer] | None] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        if node in values:
            pending.pop()
            continue
        known = cx.known(node)
        if known is not None:
            values[node] = known
            continue
        available = cx.available.get(node)
        if available is not None:
            values[node], reads[node] = available
            continue
        operands = _needed(cx, node)
        missing = [o for o in operands if o not in values]
        if missing:
            pending.extend(reversed(missing))
            continue
        values[node] = _emit_node(cx, node, [values[o] for o in operands])
        read = _read(cx, node, [reads[o] for o in operands if o in reads])
        _keep(cx, node, values[node], read)
        if read is None or read:
            reads[node] = read
        yield True


def _emit_node(cx: Context, node: Expr, args: list[LLValue]) -> LLValue:
    nibbles = as_nibbles(cx.target, node)
    if nibbles is not None:
        return to_floats(cx, nibbles, args[0])
    emitter = _EMITTERS[type(node)]
    narrow = emit_narrow(cx, node, args, emitter)
    return emitter(cx, node, args) if narrow is None else narrow


def _read(
    cx: Context, node: Expr, of_operands: list[frozenset[Buffer] | None]
) -> frozenset[Buffer] | None:
    """The buffers that a value depends on; None where it depends on side effects."""
    if not is_pure(node):
        return None
    read = frozenset([cx.aliases.alias_class(node.buffer)]) if isinstance(node, Load) else _NOTHING
    for of_operand in of_operands:
        if of_operand is None:
            return None
        read |= of_operand
    return read


def _keep(cx: Context, node: Expr, value: LLValue, read: frozenset[Buffer] | None) -> None:
    if read is None:
        if _may_write(node):
            cx.available.forget()
    elif read:
        cx.available.add(node, value, read)
    else:
        cx.remember(node, value)


def _may_write(node: Expr) -> bool:
    return isinstance(node, Call) and not is_pure(node) and node.name != "prefetch"


def _needed(cx: Context, node: Expr) -> tuple[Expr, ...]:
    """The operands to evaluate first. Of a contiguous access, only its first index; of nodes that
    are emitted as one pattern (clamps to bytes, 4-bit numbers), the operands of the pattern."""
    nibbles = as_nibbles(cx.target, node)
    if nibbles is not None:
        return (nibbles.byte,)
    if isinstance(node, Cast):
        to_bytes = as_rounded(cx.target, node) or as_held(cx.target, node)
        return node.operands if to_bytes is None else to_bytes.operands
    if isinstance(node, Call) and node.name == "address_of":
        node = node.args[0]
    if not isinstance(node, Load):
        return node.operands
    start = load_start(cx, node)
    return (start,) if node.mask is None else (start, node.mask)


def _emit_ramp(cx: Context, node: Ramp, args: list[LLValue]) -> LLValue:
    base, stride = args
    lanes = node.dtype.lanes
    numbers = llvm.Constant(
        llvm.VectorType(base.type, lanes), [llvm.Constant(base.type, k) for k in range(lanes)]
    )
    steps = cx.builder.mul(splat(cx, stride, lanes), numbers)
    return cx.builder.add(splat(cx, base, lanes), steps)


def _emit_select(cx: Context, node: Select, args: list[LLValue]) -> LLValue:
    condition, a, b = args
    return a if _is_zero_where_not(node) else cx.builder.select(condition, a, b)


def _is_zero_where_not(node: Select) -> bool:
    """Whether `b` is the zero that the masked load `a` gives anyway for a false condition."""
    if not isinstance(node.a, Load) or node.a.mask is None or node.dtype.bits < _NARROWEST_MASKED:
        return False
    own, zero = (e.a if isinstance(e, Broadcast) else e for e in (node.a.mask, node.b))
    is_zero = isinstance(zero, Const) and zero.value == 0 and copysign(1, zero.value) == 1
    return is_zero and own is node.condition


_EMITTERS: dict[type[Expr], Callable[[Context, Any, list[LLValue]], LLValue]] = {
    Var: lambda cx, node, _: cx.variable(node),
    Const: lambda _cx, node, _: llvm.Constant(register_type(node.dtype), node.value),
    Unary: emit_unary,
    Binary: emit_binary,
    Cast: emit_cast,
    Select: _emit_select,
    Load: emit_load,
    Call: emit_call,
    Ramp: _emit_ramp,
    Broadcast: lambda cx, node, args: splat(cx, args[0], node.dtype.lanes),
}
