"""Loops that are outlined: their body becomes a function over iterations, which the thread pool
runs on ranges of them (`fork`) or which is called once for all (`call_outlined`).

The latter is for loops beside another one that needs all registers: LLVM would keep the constants
of both in registers throughout (`Target.keeps_constants`).

A parallel loop with the annotation "back_and_forth" runs backward in every other iteration of the
loop around it: each thread begins with what it read last, which its cache still holds.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.captured import used_by
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.streams import order_streams
from tilewright.codegen.llvm.types import (
    LLType,
    LLValue,
    i32,
    i64,
    llvm,
    pointer,
    void,
)
from tilewright.ir import (
    Buffer,
    For,
    Stmt,
    Var,
)


class Captured(NamedTuple):
    """What the body of a loop uses from outside."""

    variables: list[Var]
    buffers: list[Buffer]

    def values(self, cx: Context) -> list[LLValue]:
        return [cx.variables[v] for v in self.variables] + [cx.addresses[b] for b in self.buffers]


def emit_outlined(frame: Frame, loop: For) -> None:
    """Outline the loop, and call it once for all iterations."""
    function, record = emit_parallel(frame, loop, "outlined")
    function.attributes.add("noinline")
    extent = emit(frame.cx, loop.extent)
    frame.cx.builder.call(function, [record, llvm.Constant(i64, 0), extent])


def emit_parallel(frame: Frame, loop: For, name: str = "parallel") -> tuple[LLValue, LLValue]:
    """The function that runs a range of iterations, and the record of what it captures."""
    cx = frame.cx
    captured = captured_by(cx, loop.body)
    turn = frame.around[-1] if frame.around and "back_and_forth" in loop.annotations else None
    if turn is not None and turn not in captured.variables:
        captured.variables.append(turn)
    values = [frame.env, *captured.values(cx)]
    kind = llvm.LiteralStructType([v.type for v in values])
    record = frame.stack_slot(kind)
    for k, value in enumerate(values):
        cx.builder.store(value, _field(cx, record, kind, k))
    return _emit_body(frame, loop, captured, kind, name, turn), record


def captured_by(cx: Context, body: Stmt) -> Captured:
    """Variables and buffers that `body` uses and that have a value at this point."""
    variables, buffers = used_by(body)
    return Captured(
        [v for v in variables if v in cx.variables], [b for b in buffers if b in cx.addresses]
    )


def _emit_body(
    frame: Frame, loop: For, captured: Captured, kind: LLType, suffix: str, turn: Var | None
) -> LLValue:
    from tilewright.codegen.llvm.stmt import emit_loop

    outer = frame.cx
    name = outer.module.get_unique_name(f"{frame.function.name}.{suffix}")
    signature = llvm.FunctionType(void, [pointer, i64, i64])
    function = llvm.Function(outer.module, signature, name)
    function.linkage = "internal"
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    cx = Context(outer.module, outer.target, builder, outer.aliases, ranges=outer.ranges)
    env, *values = [
        builder.load(_field(cx, function.args[0], kind, k), typ=element)
        for k, element in enumerate(kind.elements)
    ]
    for variable, value in zip([*captured.variables], values, strict=False):
        cx.variables[variable] = value
    for buffer, value in zip(captured.buffers, values[len(captured.variables) :], strict=True):
        cx.addresses[buffer] = value
    inner = Frame(cx, env, frame.workspace, frame.messages, frame.emit_body, is_host=False)

    def body(count: LLValue) -> None:
        cx.variables[loop.var] = count if turn is None else _in_turn(cx, count, cx.variables[turn])
        with cx.knowing(lambda known: known.with_extent(loop.var, loop.extent)):
            inner.emit_body(inner, loop.body)

    inner.streamed = frame.streamed
    emit_loop(inner, function.args[2], body, start=function.args[1])
    order_streams(inner)
    inner.finish()
    return function


def _in_turn(cx: Context, count: LLValue, turn: LLValue) -> LLValue:
    """The iteration that a range of them runs at this place: from its end, where `turn` is odd."""
    _, begin, end = cx.builder.function.args
    last = cx.builder.sub(end, llvm.Constant(i64, 1))
    mirrored = cx.builder.sub(cx.builder.add(begin, last), count)
    is_odd = cx.builder.trunc(turn, llvm.IntType(1))
    return cx.builder.select(is_odd, mirrored, count)


def _field(cx: Context, record: LLValue, kind: LLType, number: int) -> LLValue:
    path = [llvm.Constant(i32, 0), llvm.Constant(i32, number)]
    return cx.builder.gep(record, path, inbounds=True, source_etype=kind)
