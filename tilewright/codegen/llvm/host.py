"""What host programs do besides arithmetic: call kernels, copy memory, hold blocks and lists.

A kernel is called with its own signature (`frame`). Its `env` is built by the caller: the same
thread pool and error record, but a workspace of its own. The messages of all kernels are
concatenated in the caller's table, so the caller adds a kernel's offset there to its message
number.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.convention import OUT_OF_MEMORY, POOL
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.lists import (
    EMPTY_BYTES,
    list_function,
    refer,
    store_dims,
)
from tilewright.codegen.llvm.types import LLValue, i1, i32, i64, llvm, pointer, void
from tilewright.codegen.sizes import saturated
from tilewright.ir import Call, Const, Expr

_NULL: LLValue = llvm.Constant(pointer, None)


def emit_kernel_call(frame: Frame, node: Call) -> None:
    """Call the kernel that `node` names; leave the function where it fails."""
    cx, name = frame.cx, node.name.removeprefix("kernel.")
    *args, workspace = (_operand(cx, a) for a in node.args)
    env = frame.kernel_env()
    if not isinstance(workspace, llvm.Constant):
        cx.builder.store(workspace, frame.env_word(env, 1))
    called, sizes = frame.shared.get(name, (name, ()))
    given = [*(llvm.Constant(i64, size) for size in sizes), *args, env]
    start = frame.recorder.now() if frame.recorder else None
    code = cx.builder.call(cx.declare(called, i32, [a.type for a in given]), given)
    if frame.recorder:
        frame.recorder.record(frame.calls, start, [a for a in args if a.type != pointer])
    frame.calls += 1
    first = frame.first_messages.get(name)
    if first is not None:
        frame.leave_if_kernel_failed(code, first, frame.calls)


def _operand(cx: Context, expr: Expr) -> LLValue:
    """The value of an operand; addresses become pointers."""
    return _address(cx, expr) if expr.dtype.name == "uint64" else emit(cx, expr)


def _address(cx: Context, expr: Expr) -> LLValue:
    if isinstance(expr, Const):
        return _NULL
    value = emit(cx, expr)
    return value if value.type == pointer else cx.builder.inttoptr(value, pointer)


def _copy_memory(frame: Frame, node: Call) -> None:
    cx = frame.cx
    to, source = (_address(cx, a) for a in node.args[:2])
    size = emit(cx, node.args[2])
    if frame.on_device:
        _call_device(frame, "tw_copy", [to, source, size])
        return
    args = [to, source, size, llvm.Constant(i1, False)]
    cx.intrinsic("llvm.memcpy", void, args, [pointer, pointer, i64])


def _fetch(frame: Frame, node: Call) -> None:
    """Copy from the device, after all work queued on it."""
    to, source = (_address(frame.cx, a) for a in node.args[:2])
    _call_device(frame, "tw_fetch", [to, source, emit(frame.cx, node.args[2])])


def _store_number(frame: Frame, node: Call) -> None:
    place = _address(frame.cx, node.args[0])
    _call_device(frame, "tw_store", [place, *(emit(frame.cx, a) for a in node.args[1:])])


def _call_device(frame: Frame, name: str, args: list[LLValue]) -> None:
    """Call a runtime function for the device; leave the function where it fails."""
    builder = frame.cx.builder
    args = [frame.word(POOL), *args]
    status = builder.call(frame.cx.declare(name, i32, [a.type for a in args]), args)
    refused = builder.icmp_signed("!=", status, llvm.Constant(i32, 0))
    with builder.if_then(refused, likely=False):
        frame.fail("the device refused to move memory", [])


def _take(frame: Frame, node: Call) -> None:
    _release(frame, node)
    slot, size = frame.heap_block(_number(node)), _size(frame, node.args[1])
    _keep(frame, slot, frame.take(size), size)


def _grow(frame: Frame, node: Call) -> None:
    slot, size = frame.heap_block(_number(node)), _size(frame, node.args[1])
    block = frame.cx.builder.load(slot, typ=pointer)
    _keep(frame, slot, frame.grow(block, size), size)


def _keep(frame: Frame, slot: LLValue, taken: LLValue, size: LLValue) -> None:
    builder = frame.cx.builder
    _require_memory(frame, builder.icmp_unsigned("==", taken, _NULL), size)
    builder.store(taken, slot)


def _require_memory(frame: Frame, missing: LLValue, size: LLValue) -> None:
    builder = frame.cx.builder
    with builder.if_then(missing, likely=False):
        amount = size if size.type == i64 else builder.zext(size, i64)
        frame.fail(OUT_OF_MEMORY, [amount])


def _size(frame: Frame, expr: Expr) -> LLValue:
    """A size in bytes as libc's `size_t`; at least 1, since malloc(0) may return null."""
    cx, builder = frame.cx, frame.cx.builder
    size, one = emit(cx, saturated(expr)), llvm.Constant(i64, 1)
    size = builder.select(builder.icmp_signed("<", size, one), one, size)
    word = llvm.IntType(cx.target.pointer_bits)
    return size if word == i64 else builder.trunc(size, word)


def _release(frame: Frame, node: Call) -> None:
    slot, builder = frame.heap_block(_number(node)), frame.cx.builder
    frame.free(builder.load(slot, typ=pointer))
    builder.store(_NULL, slot)


def _swap(frame: Frame, node: Call) -> None:
    _exchange(frame, [frame.heap_block(_number(node, k)) for k in range(2)])


def _exchange(frame: Frame, slots: list[LLValue]) -> None:
    builder = frame.cx.builder
    contents = [builder.load(slot, typ=pointer) for slot in slots]
    for slot, other in zip(slots, reversed(contents), strict=True):
        builder.store(other, slot)


def _number(node: Call, operand: int = 0) -> int:
    number = node.args[operand]
    assert isinstance(number, Const)
    return int(number.value)


# ---- lists --------------------------------------------------------------------------------------


def _list_empty(frame: Frame, node: Call) -> None:
    cx, slot = frame.cx, frame.list_slot(_number(node))
    made = cx.builder.call(list_function(cx, "empty"), [])
    missing = cx.builder.icmp_unsigned("==", made, _NULL)
    _require_memory(frame, missing, llvm.Constant(i64, EMPTY_BYTES))
    _replace_list(frame, slot, made)


def _list_insert(frame: Frame, node: Call) -> None:
    cx, slot = frame.cx, frame.list_slot(_number(node))
    position, size = emit(cx, node.args[1]), emit(cx, saturated(node.args[2]))
    dims = [emit(cx, d) for d in node.args[3:]]
    rank = llvm.Constant(i64, len(dims))
    item = cx.builder.call(list_function(cx, "insert"), [slot, position, size, rank])
    _require_memory(frame, cx.builder.icmp_unsigned("==", item, _NULL), size)
    store_dims(cx, item, dims)


def _list_erase(frame: Frame, node: Call) -> None:
    cx, slot = frame.cx, frame.list_slot(_number(node))
    done = cx.builder.call(list_function(cx, "erase"), [slot, emit(cx, node.args[1])])
    # Out of memory for a copy of the list; the reported size does not matter, as lists are small.
    _require_memory(frame, cx.builder.not_(done), llvm.Constant(i64, EMPTY_BYTES))


def _list_share(frame: Frame, node: Call) -> None:
    slot, source = (frame.list_slot(_number(node, k)) for k in range(2))
    list_ = frame.cx.builder.load(source, typ=pointer)
    refer(frame.cx, list_)
    _replace_list(frame, slot, list_)


def _list_adopt(frame: Frame, node: Call) -> None:
    list_ = frame.cx.builder.inttoptr(emit(frame.cx, node.args[1]), pointer)
    refer(frame.cx, list_)
    _replace_list(frame, frame.list_slot(_number(node)), list_)


def _list_swap(frame: Frame, node: Call) -> None:
    _exchange(frame, [frame.list_slot(_number(node, k)) for k in range(2)])


def _list_release(frame: Frame, node: Call) -> None:
    _replace_list(frame, frame.list_slot(_number(node)), _NULL)


def _replace_list(frame: Frame, slot: LLValue, list_: LLValue) -> None:
    """Put a list into a slot, which takes ownership of the reference."""
    builder = frame.cx.builder
    builder.call(list_function(frame.cx, "release"), [builder.load(slot, typ=pointer)])
    builder.store(list_, slot)


HOST: dict[str, Callable[[Frame, Call], None]] = {
    "copy_memory": _copy_memory,
    "fetch": _fetch,
    "store_number": _store_number,
    "heap_take": _take,
    "heap_grow": _grow,
    "heap_release": _release,
    "heap_swap": _swap,
    "list_empty": _list_empty,
    "list_insert": _list_insert,
    "list_erase": _list_erase,
    "list_share": _list_share,
    "list_adopt": _list_adopt,
    "list_swap": _list_swap,
    "list_release": _list_release,
}
