"""Launches of kernels on a device, from host code.

A launch passes the runtime one array of words: the address and size of the device's code, which is
embedded in this module, the number of blocks along each axis, the number of arguments, the
arguments, and the size in bytes of each buffer among them, from which the runtime tells which
launches touch the same memory.

    i32 tw_launch(void *device, i64 words[])

It returns 0 once the launch is queued; errors in the kernel are reported later, when the host waits
for the device.

Wide accesses of a GPU must be aligned to their size, which depends on the caller's arrays: a kernel
whose code depends on the alignment is compiled twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.codegen.convention import POOL, size_in_bytes
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.types import LLValue, i8, i32, i64, llvm, pointer
from tilewright.ir import Call, Expr, Load

#: Bytes of the widest access.
WIDEST: Final = 16


def emit_launch(frame: Frame, node: Call) -> None:
    """Launch the kernel that `node` names; leave the function where the launch is refused."""
    cx, name = frame.cx, node.name.removeprefix("launch.")
    blocks = [emit(cx, e) for e in node.args[:3]]
    args = [_word(frame, a) for a in node.args[3:]]
    places = [w for w, e in zip(args, node.args[3:], strict=True) if e.dtype.name == "uint64"]
    start, size = _code_of(frame, name, places)
    sizes = [
        emit(cx, _size(frame, a))
        for a in node.args[3:]
        if isinstance(a, Call) and a.name == "address_of"
    ]
    words = [start, size, *blocks, llvm.Constant(i64, len(args)), *args, *sizes]
    block = frame.stack_slot(llvm.ArrayType(i64, len(words)))
    for k, word in enumerate(words):
        cx.builder.store(word, frame.env_word(block, k))
    launch = cx.declare("tw_launch", i32, [pointer, pointer])
    status = cx.builder.call(launch, [frame.word(POOL), block])
    refused = cx.builder.icmp_signed("!=", status, llvm.Constant(i32, 0))
    with cx.builder.if_then(refused, likely=False):
        frame.fail(f"the device refused to launch {name}", [])


def _size(frame: Frame, address: Call) -> Expr:
    """The size in bytes of the buffer that an address argument belongs to."""
    (element,) = address.args
    assert isinstance(element, Load)
    return size_in_bytes(element.buffer, frame.workspace.ranges)


def _code_of(frame: Frame, name: str, places: Sequence[LLValue]) -> tuple[LLValue, LLValue]:
    """Address and size of a kernel's device code, chosen by the alignment of the buffers."""
    builder = frame.cx.builder
    best, *others = [
        _embedded(frame, f"{name}.{k}", data) for k, data in enumerate(frame.images[name])
    ]
    if not others:
        return best
    bits = llvm.Constant(i64, 0)
    for place in places:
        bits = builder.or_(bits, place)
    low = builder.and_(bits, llvm.Constant(i64, WIDEST - 1))
    fits = builder.icmp_unsigned("==", low, llvm.Constant(i64, 0))
    start, size = (builder.select(fits, a, b) for a, b in zip(best, others[0], strict=True))
    return start, size


def _embedded(frame: Frame, name: str, data: bytes) -> tuple[LLValue, LLValue]:
    """Address and size of data embedded in this module."""
    module = frame.cx.module
    found = module.globals.get(name)
    if found is None:
        kind = llvm.ArrayType(i8, len(data))
        found = llvm.GlobalVariable(module, kind, name)
        found.linkage, found.global_constant = "internal", True
        found.initializer = llvm.Constant(kind, bytearray(data))
    return frame.cx.builder.ptrtoint(found, i64), llvm.Constant(i64, len(data))


def _word(frame: Frame, expr: Expr) -> LLValue:
    """An argument as a word, zero-extended."""
    builder, value = frame.cx.builder, emit(frame.cx, expr)
    if value.type == pointer:
        return builder.ptrtoint(value, i64)
    if not isinstance(value.type, llvm.IntType):
        value = builder.bitcast(value, llvm.IntType(expr.dtype.bits))
    return value if value.type == i64 else builder.zext(value, i64)
