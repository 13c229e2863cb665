"""Emits statements as C: one row of a table per kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.codegen.c.frame import CFrame
from tilewright.codegen.c.host import HOST, emit_kernel_call
from tilewright.codegen.c.types import c_type, memory_type
from tilewright.codegen.captured import used_by
from tilewright.codegen.convention import POOL
from tilewright.ir import (
    Alloc,
    Assert,
    Buffer,
    Call,
    Const,
    Evaluate,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    cast,
)
from tilewright.support.errors import InternalError


def emit_stmt(frame: CFrame, stmt: Stmt) -> None:
    """Write `stmt` to the function."""
    emitter = _EMITTERS.get(type(stmt))
    if emitter is None:
        raise InternalError(f"{type(stmt).__name__} reached code generation")
    emitter(frame, stmt)


def _emit_for(frame: CFrame, stmt: For) -> None:
    if stmt.kind == "parallel" and frame.is_main:
        _emit_parallel(frame, stmt)
        return
    if stmt.kind not in ("serial", "parallel"):
        raise InternalError(f"a {stmt.kind} loop reached code generation")
    extent = frame.value(stmt.extent, as_index=True)
    if not isinstance(stmt.extent, Const | Var):
        extent = frame.named(stmt.extent.dtype, extent, "count")
    _emit_loop(frame, stmt, "0", extent)


def _emit_loop(frame: CFrame, stmt: For, start: str, end: str) -> None:
    name, kind = frame.names.new(stmt.var.name), c_type(stmt.var.dtype)
    frame.bind(stmt.var, name)
    with frame.block(f"for ({kind} {name} = {start}; {name} < {end}; ++{name})"):
        emit_stmt(frame, stmt.body)


def _emit_parallel(frame: CFrame, loop: For) -> None:
    """Outline the loop's body; the thread pool runs it on ranges of iterations."""
    variables, buffers = _captured(frame, loop.body)
    name = f"{frame.name}_parallel_{len(frame.unit.functions)}"
    inner = CFrame(frame.unit, frame.name, frame.workspace, frame.messages, is_main=False)
    inner.known = frozenset(variables)
    fields, values, first = ["const uint64_t *env;"], ["env"], list[str]()
    first.append(f"  const struct {name} *const own = given;")
    first.append("  const uint64_t *const env = own->env;")
    items: list[tuple[Var | Buffer, str, str]] = [
        *((v, c_type(v.dtype), frame.variable(v)) for v in variables),
        *((b, f"{memory_type(b.dtype)} *", frame.buffer(b)) for b in buffers),
    ]
    for item, kind, value in items:
        own = inner.names.new(item.name)
        fields.append(f"{kind} {own};")
        values.append(value)
        first.append(f"  {kind} const {own} = own->{own};")
        if isinstance(item, Var):
            inner.bind(item, own)
        else:
            inner.place(item, own)
    first.append("  (void)env;")
    messages_before = len(frame.messages)
    _emit_loop(inner, loop, "begin", "end")
    body = inner.finished(f"static void {name}(void *given, int64_t begin, int64_t end)", first)
    record = "\n".join([f"struct {name} {{", *(f"  {f}" for f in fields), "};\n"])
    frame.unit.functions += [record, body]
    frame.unit.declare(_POOL_RUN)
    with frame.block(""):
        frame.line(f"struct {name} own = {{{', '.join(values)}}};")
        extent = frame.value(loop.extent, as_index=True)
        pool = f"(void *)(uintptr_t)env[{POOL}]"
        frame.line(f"tw_pool_run({pool}, {name}, &own, {extent});")
    if len(frame.messages) > messages_before:
        frame.leave_if_failed()


_POOL_RUN = "TW_POOL void tw_pool_run(void *, void (*)(void *, int64_t, int64_t), void *, int64_t);"


def _captured(frame: CFrame, body: Stmt) -> tuple[list[Var], list[Buffer]]:
    """Variables and buffers that `body` uses and that are defined at this point."""
    variables, buffers = used_by(body)
    return [v for v in variables if frame.knows(v)], [b for b in buffers if frame.knows(b)]


def _emit_store(frame: CFrame, stmt: Store) -> None:
    value = frame.value(stmt.value)
    index = frame.value(stmt.indices[0], as_index=True)
    text = f"{frame.buffer(stmt.buffer)}[{index}] = {value};"
    frame.line(text if stmt.mask is None else f"if ({frame.value(stmt.mask)}) {text}")


def _emit_if(frame: CFrame, stmt: If) -> None:
    if isinstance(stmt.condition, Const):
        chosen = stmt.then if stmt.condition.value else stmt.otherwise
        if chosen is not None:
            emit_stmt(frame, chosen)
        return
    with frame.block(f"if ({frame.value(stmt.condition)})"):
        emit_stmt(frame, stmt.then)
    if stmt.otherwise is not None:
        with frame.block("else"):
            emit_stmt(frame, stmt.otherwise)


def _emit_while(frame: CFrame, stmt: While) -> None:
    with frame.block("for (;;)"):
        frame.line(f"if (!{frame.value(stmt.condition)}) break;")
        emit_stmt(frame, stmt.body)


def _emit_let(frame: CFrame, stmt: Let) -> None:
    frame.bind(stmt.var, frame.named(stmt.var.dtype, frame.value(stmt.value), stmt.var.name))
    emit_stmt(frame, stmt.body)


def _emit_alloc(frame: CFrame, stmt: Alloc) -> None:
    with frame.block(""):
        for buffer in stmt.buffers:
            frame.allocate(buffer)
        emit_stmt(frame, stmt.body)


def _emit_assert(frame: CFrame, stmt: Assert) -> None:
    if isinstance(stmt.condition, Const) and stmt.condition.value:
        return
    with frame.block(f"if (!{frame.value(stmt.condition)})"):
        frame.fail(stmt.message, [frame.value(cast(v, "int64")) for v in stmt.values])


def _emit_evaluate(frame: CFrame, stmt: Evaluate) -> None:
    call = stmt.call
    if isinstance(call, Call) and call.name.startswith("kernel."):
        emit_kernel_call(frame, call)
    elif isinstance(call, Call) and call.name in HOST:
        with frame.block(""):
            HOST[call.name](frame, call)
    else:
        frame.line(f"(void){frame.value(call)};")


def _emit_seq(frame: CFrame, stmt: Seq) -> None:
    for part in stmt.statements:
        emit_stmt(frame, part)


_EMITTERS: dict[type[Stmt], Callable[[CFrame, Any], None]] = {
    For: _emit_for,
    Store: _emit_store,
    If: _emit_if,
    While: _emit_while,
    Let: _emit_let,
    Alloc: _emit_alloc,
    Assert: _emit_assert,
    Evaluate: _emit_evaluate,
    Seq: _emit_seq,
}
