"""Results that are written past the caches, in lines that nobody has to read first.

A function names them in its attribute `streams`, by their numbers among its buffers. Stores that
bypass the caches want addresses that divide by their size, which only the caller's arrays tell: the
function has its body twice, once for arrays that begin with a line of the caches.

    if Y % 64 == 0:
        for i: Y[ramp(i * 16, 1, 16)] = …       past the caches; then a fence
    else:
        for i: Y[ramp(i * 16, 1, 16)] = …
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.memory import ALIGNMENT_LIMIT
from tilewright.codegen.llvm.types import LLValue, i64, llvm, void
from tilewright.ir import Buffer, Function


def emit_streaming(frame: Frame, function: Function) -> None:
    """Emit the body of `function`, twice where it has results that may bypass the caches."""
    numbers: Sequence[int] = function.attrs.get("streams", ())
    buffers = [function.buffers[k] for k in numbers]
    if not buffers:
        frame.fill(frame, function.body)
        return
    cx = frame.cx
    with cx.builder.if_else(_start_with_lines(frame, buffers)) as (then, otherwise):
        with then, cx.nested_scope():
            frame.streamed = frozenset(buffers)
            frame.fill(frame, function.body)
            order_streams(frame)
        with otherwise, cx.nested_scope():
            frame.streamed = frozenset()
            frame.fill(frame, function.body)


def _start_with_lines(frame: Frame, buffers: Sequence[Buffer]) -> LLValue:
    builder = frame.cx.builder
    addresses = llvm.Constant(i64, 0)
    for buffer in buffers:
        addresses = builder.or_(addresses, builder.ptrtoint(frame.cx.address(buffer), i64))
    rest = builder.and_(addresses, llvm.Constant(i64, ALIGNMENT_LIMIT - 1))
    return builder.icmp_unsigned("==", rest, llvm.Constant(i64, 0))


def order_streams(frame: Frame) -> None:
    """What was written past the caches comes before all that follows, as seen by other threads.

    Elsewhere than on x86-64 the barriers that end a parallel loop see to that.
    """
    if frame.streamed and frame.cx.target.arch == "x86_64":
        frame.cx.intrinsic("llvm.x86.sse.sfence", void, [], [])
