"""What host programs do beside arithmetic: call kernels, copy memory, take blocks of the heap.

A kernel is called with its own signature (`frame`). It gets an `env` of the caller's making: the
same thread pool and error record, but a workspace of its own. The messages of all kernels stand in
the caller's table, one after the other: the caller adds to a kernel's number where its own begin.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.sizes import saturated
from tilewright.codegen.llvm.types import LLValue, i1, i32, i64, llvm, pointer, void
from tilewright.ir import Call, Const, Expr

_NULL: LLValue = llvm.Constant(pointer, None)


def emit_kernel_call(frame: Frame, node: Call) -> None:
    """Call the kernel that `node` names; leave the function where it fails."""
    cx, name = frame.cx, node.name.removeprefix("kernel.")
    *args, workspace = (_operand(cx, a) for a in node.args)
    env = frame.kernel_env()
    if not isinstance(workspace, llvm.Constant):
        cx.builder.store(workspace, frame.env_word(env, 1))
    args.append(env)
    start = frame.recorder.now() if frame.recorder else None
    code = cx.builder.call(cx.declare(name, i32, [a.type for a in args]), args)
    if frame.recorder:
        frame.recorder.record(frame.calls, start, [a for a in args if a.type != pointer])
    frame.calls += 1
    first = frame.first_messages.get(name)
    if first is not None:
        frame.leave_if_kernel_failed(code, first, frame.calls)


def _operand(cx: Context, expr: Expr) -> LLValue:
    """A number, or an address as a pointer."""
    return _address(cx, expr) if expr.dtype.name == "uint64" else emit(cx, expr)


def _address(cx: Context, expr: Expr) -> LLValue:
    if isinstance(expr, Const):
        return _NULL
    value = emit(cx, expr)
    return value if value.type == pointer else cx.builder.inttoptr(value, pointer)


def _copy_memory(frame: Frame, node: Call) -> None:
    cx = frame.cx
    to, source = (_address(cx, a) for a in node.args[:2])
    args = [to, source, emit(cx, node.args[2]), llvm.Constant(i1, False)]
    cx.intrinsic("llvm.memcpy", void, args, [pointer, pointer, i64])


def _take(frame: Frame, node: Call) -> None:
    _release(frame, node)
    slot, size = frame.heap_block(_number(node)), _size(frame, node.args[1])
    malloc = frame.cx.declare("malloc", pointer, [size.type])
    _keep(frame, slot, frame.cx.builder.call(malloc, [size]), size)


def _grow(frame: Frame, node: Call) -> None:
    slot, size = frame.heap_block(_number(node)), _size(frame, node.args[1])
    realloc = frame.cx.declare("realloc", pointer, [pointer, size.type])
    held = frame.cx.builder.load(slot, typ=pointer)
    _keep(frame, slot, frame.cx.builder.call(realloc, [held, size]), size)


def _keep(frame: Frame, slot: LLValue, taken: LLValue, size: LLValue) -> None:
    builder = frame.cx.builder
    with builder.if_then(builder.icmp_unsigned("==", taken, _NULL), likely=False):
        amount = size if size.type == i64 else builder.zext(size, i64)
        frame.fail("out of memory: {} bytes are needed", [amount])
    builder.store(taken, slot)


def _size(frame: Frame, expr: Expr) -> LLValue:
    """Bytes as libc counts them; never 0, for which it may give nothing."""
    cx, builder = frame.cx, frame.cx.builder
    size, one = emit(cx, saturated(expr)), llvm.Constant(i64, 1)
    size = builder.select(builder.icmp_signed("<", size, one), one, size)
    word = llvm.IntType(cx.target.pointer_bits)
    return size if word == i64 else builder.trunc(size, word)


def _release(frame: Frame, node: Call) -> None:
    slot, builder = frame.heap_block(_number(node)), frame.cx.builder
    free = frame.cx.declare("free", void, [pointer])
    builder.call(free, [builder.load(slot, typ=pointer)])
    builder.store(_NULL, slot)


def _swap(frame: Frame, node: Call) -> None:
    builder = frame.cx.builder
    slots = [frame.heap_block(_number(node, k)) for k in range(2)]
    held = [builder.load(slot, typ=pointer) for slot in slots]
    for slot, other in zip(slots, reversed(held), strict=True):
        builder.store(other, slot)


def _number(node: Call, operand: int = 0) -> int:
    number = node.args[operand]
    assert isinstance(number, Const)
    return int(number.value)


HOST: dict[str, Callable[[Frame, Call], None]] = {
    "copy_memory": _copy_memory,
    "heap_take": _take,
    "heap_grow": _grow,
    "heap_release": _release,
    "heap_swap": _swap,
}
