"""Emits statements as LLVM's basic blocks: one row of a table per kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.arith import Ranges, bounds, simplify
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.expr import emit, emit_interleaved
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.host import HOST, emit_kernel_call
from tilewright.codegen.llvm.interleave import interleaved
from tilewright.codegen.llvm.launch import emit_launch
from tilewright.codegen.llvm.memory import access_start, emit_store
from tilewright.codegen.llvm.narrow_index import fits, narrowed
from tilewright.codegen.llvm.types import LLValue, i32, i64, llvm
from tilewright.ir import (
    Alloc,
    Assert,
    Binary,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Let,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    While,
    call,
    cast,
    const,
    evaluate,
    free_vars,
    loads_in,
)
from tilewright.support.dtype import index
from tilewright.support.errors import InternalError

_ZERO: LLValue = llvm.Constant(i64, 0)


def emit_stmt(frame: Frame, stmt: Stmt) -> None:
    """Emit `stmt` at the builder's position."""
    emitter = _EMITTERS.get(type(stmt))
    if emitter is None:
        raise InternalError(f"{type(stmt).__name__} reached code generation")
    emitter(frame, stmt)


def emit_loop(
    frame: Frame, extent: LLValue, body: Callable[[LLValue], None], *, start: LLValue = _ZERO
) -> None:
    """A counting loop with its test at the end; guarded unless it provably runs at least once."""
    cx = frame.cx
    if isinstance(extent, llvm.Constant) and isinstance(start, llvm.Constant):
        if extent.constant > start.constant:
            _emit_counted(cx, start, extent, body)
        return
    runs = cx.builder.icmp_signed("<", start, extent)
    with cx.builder.if_then(runs):
        _emit_counted(cx, start, extent, body)


def _emit_counted(
    cx: Context, start: LLValue, end: LLValue, body: Callable[[LLValue], None]
) -> None:
    builder = cx.builder
    before = builder.block
    loop = builder.append_basic_block("loop")
    builder.branch(loop)
    builder.position_at_end(loop)
    count = builder.phi(end.type)
    count.add_incoming(start, before)
    with cx.nested_scope():
        body(count)
    following = builder.add(count, llvm.Constant(end.type, 1), flags=("nsw", "nuw"))
    count.add_incoming(following, builder.block)
    after = builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed("<", following, end), loop, after)
    builder.position_at_end(after)


def _emit_for(frame: Frame, stmt: For) -> None:
    if stmt.kind == "parallel" and frame.can_fork:
        frame.fork(stmt)
        frame.cx.available.forget()
        return
    if stmt.annotations.get("outline") and frame.cx.target.keeps_constants:
        frame.call_outlined(stmt)
        frame.cx.available.forget()
        return
    if stmt.kind == "thread":
        frame.thread_loop(stmt)
        return
    if stmt.kind == "vectorized":
        raise InternalError("a vectorized loop reached code generation")
    cx, is_narrow = frame.cx, fits(frame.cx, stmt.extent)
    extent = emit(cx, stmt.extent)

    def body(count: LLValue) -> None:
        cx.variables[stmt.var] = cx.builder.sext(count, i64) if is_narrow else count
        frame.around.append(stmt.var)
        with cx.knowing(lambda known: known.with_extent(stmt.var, stmt.extent)):
            emit_stmt(frame, stmt.body)
        frame.around.pop()

    if is_narrow:
        emit_loop(frame, narrowed(cx, extent), body, start=llvm.Constant(i32, 0))
    else:
        emit_loop(frame, extent, body)


def _emit_store(frame: Frame, stmt: Store) -> None:
    _emit_stores(frame, [stmt])


def _emit_stores(frame: Frame, stores: Sequence[Store]) -> None:
    """Emit stores whose values are independent."""
    cx = frame.cx
    cx.accumulations = frozenset(node for s in stores for node in _accumulations(s))
    stores = [_of_single_lane(s) for s in stores]
    positions = [emit(cx, access_start(s.indices[0])) for s in stores]
    values = emit_interleaved(cx, [s.value for s in stores])
    cx.accumulations = frozenset()
    for s, position, value in zip(stores, positions, values, strict=True):
        mask = None if s.mask is None else emit(cx, s.mask)
        streams = s.buffer in frame.streamed
        emit_store(cx, s.buffer, s.indices[0], position, value, mask, streams=streams)


def _of_single_lane(store: Store) -> Store:
    """Replace a masked vector store whose mask selects one lane by a scalar store.

    LLVM (22, AVX-512) writes too many bytes for a single lane that is truncated on store.
    """
    mask, (index,) = store.mask, store.indices
    if mask is None or not isinstance(index, Ramp) or free_vars(mask) or loads_in(mask):
        return store
    lanes = np.flatnonzero(evaluate(mask, {}))
    if len(lanes) != 1:
        return store
    lane = const(int(lanes[0]))
    position = simplify(index.base + index.stride * lane)
    return replace(store, indices=(position,), value=call("lane", store.value, lane), mask=None)


def _accumulations(store: Store) -> list[Expr]:
    """The sums in `C[i] = C[i] + a + b` and the like, which accumulate into the stored element."""
    sums, terms, pending = list[Expr](), list[Expr](), [store.value]
    # Expressions are shared: a sum that is doubled forty times would have 2**40 terms.
    seen = set[Expr]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Binary) and node.op in ("add", "sub"):
            sums.append(node)
            pending += [node.a, node.b]
        else:
            terms.append(node)
    adds = any(_is_target(term, store) for term in terms)
    return sums if adds else []


def _is_target(term: Expr, store: Store) -> bool:
    if not isinstance(term, Load):
        return False
    return term.buffer is store.buffer and term.indices == store.indices


def _emit_if(frame: Frame, stmt: If) -> None:
    cx = frame.cx
    if isinstance(stmt.condition, Const):
        chosen = stmt.then if stmt.condition.value else stmt.otherwise
        if chosen is not None:
            emit_stmt(frame, chosen)
        return
    condition = emit(cx, stmt.condition)
    if stmt.otherwise is None:
        with cx.builder.if_then(condition), cx.nested_scope(), _assuming(cx, stmt):
            emit_stmt(frame, stmt.then)
        return
    with cx.builder.if_else(condition) as (then, otherwise):
        with then, cx.nested_scope(), _assuming(cx, stmt):
            emit_stmt(frame, stmt.then)
        with otherwise, cx.nested_scope():
            emit_stmt(frame, stmt.otherwise)


def _assuming(cx: Context, stmt: If) -> AbstractContextManager[None]:
    return cx.knowing(lambda known: known.assuming(stmt.condition))


def _emit_while(frame: Frame, stmt: While) -> None:
    cx, builder = frame.cx, frame.cx.builder
    test = builder.append_basic_block("test")
    builder.branch(test)
    builder.position_at_end(test)
    with cx.nested_scope():
        condition = emit(cx, stmt.condition)
        body = builder.append_basic_block("body")
        after = builder.append_basic_block("after")
        builder.cbranch(condition, body, after)
        builder.position_at_end(body)
        emit_stmt(frame, stmt.body)
        builder.branch(test)
    builder.position_at_end(after)


def _emit_let(frame: Frame, stmt: Let) -> None:
    cx = frame.cx
    cx.variables[stmt.var] = emit(cx, stmt.value)
    with cx.knowing(lambda known: _with_let(known, stmt)):
        emit_stmt(frame, stmt.body)


def _with_let(known: Ranges, stmt: Let) -> Ranges:
    if stmt.var.dtype is not index:
        return known
    return known.with_bounds(stmt.var, *bounds(stmt.value, known))


def _emit_alloc(frame: Frame, stmt: Alloc) -> None:
    for buffer in stmt.buffers:
        frame.allocate(buffer)
    emit_stmt(frame, stmt.body)


def _emit_assert(frame: Frame, stmt: Assert) -> None:
    cx = frame.cx
    if isinstance(stmt.condition, Const) and stmt.condition.value:
        return
    holds = emit(cx, stmt.condition)
    with cx.builder.if_then(cx.builder.not_(holds), likely=False):
        with cx.nested_scope():
            values = [emit(cx, cast(v, "int64")) for v in stmt.values]
        frame.fail(stmt.message, values)


def _emit_evaluate(frame: Frame, stmt: Evaluate) -> None:
    call = stmt.call
    if isinstance(call, Call) and call.name.startswith("kernel."):
        emit_kernel_call(frame, call)
    elif isinstance(call, Call) and call.name.startswith("launch."):
        emit_launch(frame, call)
    elif isinstance(call, Call) and call.name == "barrier":
        frame.barrier()
    elif isinstance(call, Call) and call.name == "grid_barrier":
        frame.grid_barrier()
    elif isinstance(call, Call) and call.name in HOST:
        HOST[call.name](frame, call)
    else:
        emit(frame.cx, call)
        return
    frame.cx.available.forget()


def _emit_seq(frame: Frame, stmt: Seq) -> None:
    for part in interleaved(stmt.statements, frame.cx.target):
        if isinstance(part, list):
            _emit_stores(frame, part)
        else:
            emit_stmt(frame, part)


_EMITTERS: dict[type[Stmt], Callable[[Frame, Any], None]] = {
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
