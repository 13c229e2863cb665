"""Outlined loops: the body becomes a function over a range of iterations, which the thread pool
runs on parts of the loop (`fork`), or which is called once for all of it (`call_outlined`).

The latter is for loops next to another one that needs all registers: LLVM would keep the constants
of both in registers throughout (`Target.keeps_constants`).

A parallel loop with the annotation "back_and_forth" runs backward in every other iteration of the
enclosing loop: each thread starts with the data it read last, which its cache still holds. The pool
then iterates over the threads' parts of the loop, so that it does not split them into pieces.
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
    """The variables and buffers from outside that the body of a loop uses."""

    variables: list[Var]
    buffers: list[Buffer]

    def values(self, cx: Context) -> list[LLValue]:
        return [cx.variables[v] for v in self.variables] + [cx.addresses[b] for b in self.buffers]


def emit_outlined(frame: Frame, loop: For) -> None:
    """Outline the loop, and call it once for all iterations."""
    extent = emit(frame.cx, loop.extent)
    function, record = _outlined(frame, loop, "outlined", None)
    function.attributes.add("noinline")
    frame.cx.builder.call(function, [record, llvm.Constant(i64, 0), extent])


class Forked(NamedTuple):
    """The outlined function, the record of its captures, and the number of iterations."""

    function: LLValue
    record: LLValue
    extent: LLValue


def emit_parallel(frame: Frame, loop: For, pool: LLValue) -> Forked:
    """Outline a parallel loop: over its iterations, or over the threads' parts of it."""
    extent = emit(frame.cx, loop.extent)
    if not frame.around or "back_and_forth" not in loop.annotations:
        return Forked(*_outlined(frame, loop, "parallel", None), extent)
    builder = frame.cx.builder
    threads = frame.cx.declare("tw_pool_threads", i32, [pointer])
    count = builder.zext(builder.call(threads, [pool]), i64)
    parts = builder.select(builder.icmp_signed("<", extent, count), extent, count)
    turn = Turn(frame.around[-1], extent, parts)
    return Forked(*_outlined(frame, loop, "parallel", turn), parts)


class Turn(NamedTuple):
    """A back-and-forth loop: the enclosing loop's variable, the extent, the number of parts."""

    around: Var
    extent: LLValue
    parts: LLValue


def _outlined(frame: Frame, loop: For, name: str, turn: Turn | None) -> tuple[LLValue, LLValue]:
    """The outlined function, and the record of its captures."""
    cx = frame.cx
    captured = captured_by(cx, loop.body)
    if turn is not None and turn.around not in captured.variables:
        captured.variables.append(turn.around)
    values = [frame.env, *captured.values(cx)]
    if turn is not None:
        values += [turn.extent, turn.parts]
    kind = llvm.LiteralStructType([v.type for v in values])
    record = frame.stack_slot(kind)
    for k, value in enumerate(values):
        cx.builder.store(value, _field(cx, record, kind, k))
    return _emit_body(frame, loop, captured, kind, name, turn), record


def captured_by(cx: Context, body: Stmt) -> Captured:
    """Variables and buffers that `body` uses and that are defined at this point."""
    variables, buffers = used_by(body)
    return Captured(
        [v for v in variables if v in cx.variables], [b for b in buffers if b in cx.addresses]
    )


def _emit_body(
    frame: Frame, loop: For, captured: Captured, kind: LLType, suffix: str, turn: Turn | None
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
    for buffer, value in zip(captured.buffers, values[len(captured.variables) :], strict=False):
        cx.addresses[buffer] = value
    inner = Frame(cx, env, frame.workspace, frame.messages, frame.emit_body, is_host=False)

    def body(count: LLValue) -> None:
        cx.variables[loop.var] = count
        with cx.knowing(lambda known: known.with_extent(loop.var, loop.extent)):
            inner.emit_body(inner, loop.body)

    def part(index: LLValue) -> None:
        assert turn is not None
        own = Turn(turn.around, *values[-2:])
        begin, end = _bound(cx, index, own), _bound(cx, _next(cx, index), own)
        is_odd = builder.trunc(cx.variables[turn.around], llvm.IntType(1))

        def in_turn(count: LLValue) -> None:
            mirrored = builder.sub(builder.add(begin, end), _next(cx, count))
            body(builder.select(is_odd, mirrored, count))

        emit_loop(inner, end, in_turn, start=begin)

    inner.streamed = frame.streamed
    emit_loop(inner, function.args[2], body if turn is None else part, start=function.args[1])
    order_streams(inner)
    inner.finish()
    return function


def _bound(cx: Context, index: LLValue, turn: Turn) -> LLValue:
    """The first iteration of a part."""
    return cx.builder.udiv(cx.builder.mul(index, turn.extent), turn.parts)


def _next(cx: Context, count: LLValue) -> LLValue:
    return cx.builder.add(count, llvm.Constant(i64, 1))


def _field(cx: Context, record: LLValue, kind: LLType, number: int) -> LLValue:
    path = [llvm.Constant(i32, 0), llvm.Constant(i32, number)]
    return cx.builder.gep(record, path, inbounds=True, source_etype=kind)
