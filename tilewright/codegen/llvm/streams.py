"""Results written by non-temporal stores, which bypass the caches and do not read lines first.

A function lists them in its attribute `streams`, by their indices among its buffers. Non-temporal
stores must be aligned to their size, which depends on the caller's arrays: the body is emitted
twice, once for arrays that start at a cache line.

    if Y % 64 == 0:
        for i: Y[ramp(i * 16, 1, 16)] = …       past the caches; then a fence
    else:
        for i: Y[ramp(i * 16, 1, 16)] = …
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.types import LLValue, i64, llvm, void
from tilewright.ir import Buffer, Function
from tilewright.support.memory import ALIGNMENT


def emit_streaming(frame: Frame, function: Function) -> None:
    """Emit the body of `function`, twice where it has results for non-temporal stores."""
    numbers: Sequence[int] = function.attrs.get("streams", ())
    buffers = [function.buffers[k] for k in numbers]
    if not buffers:
        frame.emit_body(frame, function.body)
        return
    cx = frame.cx
    with cx.builder.if_else(_are_aligned(frame, buffers)) as (then, otherwise):
        with then, cx.nested_scope():
            frame.streamed = frozenset(buffers)
            frame.emit_body(frame, function.body)
            order_streams(frame)
        with otherwise, cx.nested_scope():
            frame.streamed = frozenset()
            frame.emit_body(frame, function.body)


def _are_aligned(frame: Frame, buffers: Sequence[Buffer]) -> LLValue:
    builder = frame.cx.builder
    addresses = llvm.Constant(i64, 0)
    for buffer in buffers:
        addresses = builder.or_(addresses, builder.ptrtoint(frame.cx.address(buffer), i64))
    rest = builder.and_(addresses, llvm.Constant(i64, ALIGNMENT - 1))
    return builder.icmp_unsigned("==", rest, llvm.Constant(i64, 0))


def order_streams(frame: Frame) -> None:
    """A store fence: orders non-temporal stores before all that follows.

    On architectures other than x86-64, the barriers that end a parallel loop order them too.
    """
    if frame.streamed and frame.cx.target.arch == "x86_64":
        frame.cx.intrinsic("llvm.x86.sse.sfence", void, [], [])
